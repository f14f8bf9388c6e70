// SPDX-License-Identifier: Apache-2.0
// NCCLSIM_IMPORTS: each rank exports memory to the other ranks of its host and retains the imported memory,
// as NCCL's connections between GPUs of one host do. Descriptors are sent over abstract Unix sockets.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tests/simulators/ncclsim/comm/init.h"

namespace ncclsim {
namespace {

constexpr std::size_t kImportBytes = std::size_t{2} << 20;
constexpr auto kTimeToAccept = std::chrono::seconds(30);

// The data that is sent with the descriptor.
struct Offer {
  std::uint64_t secret = 0;
  std::int32_t from = 0;
  std::uint32_t unused = 0;
  std::uint64_t bytes = 0;
};

sockaddr_un name_of_rank(std::uint64_t secret, int rank, socklen_t* bytes) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int length = std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "ncclsim-%016llx-%d",
                                   static_cast<unsigned long long>(secret), rank);
  *bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
  return address;
}

ncclResult_t send_offer(int socket, const Offer& offer, int descriptor) {
  iovec part{const_cast<Offer*>(&offer), sizeof offer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  cmsghdr* item = CMSG_FIRSTHDR(&header);
  item->cmsg_level = SOL_SOCKET;
  item->cmsg_type = SCM_RIGHTS;
  item->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(item), &descriptor, sizeof descriptor);
  NCCLSIM_CHECK(::sendmsg(socket, &header, MSG_NOSIGNAL) == sizeof offer, ncclSystemError,
                "memory cannot be offered to a rank of this host: %s", std::strerror(errno));
  return ncclSuccess;
}

ncclResult_t wait_readable(int socket, const Limits& limits) {
  const auto deadline = std::min(limits.deadline, Clock::now() + kTimeToAccept);
  pollfd polled[2] = {{socket, POLLIN, 0}, {limits.stop->descriptor(), POLLIN, 0}};
  while (::poll(polled, 2, milliseconds_until(deadline)) < 0 && errno == EINTR) {
  }
  NCCLSIM_CHECK(!limits.stop->is_set(), ncclInternalError, "aborted");
  NCCLSIM_CHECK(polled[0].revents != 0, ncclSystemError, "a rank of this host offers no memory");
  return ncclSuccess;
}

ncclResult_t receive_offer(int socket, const Limits& limits, Offer* offer, Descriptor* memory) {
  NCCLSIM_TRY(wait_readable(socket, limits));
  iovec part{offer, sizeof *offer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  const cmsghdr* item = CMSG_FIRSTHDR(&header);
  if (got > 0 && item != nullptr && item->cmsg_type == SCM_RIGHTS &&
      item->cmsg_len == CMSG_LEN(sizeof(int))) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(item), sizeof descriptor);
    *memory = Descriptor(descriptor);
  }
  NCCLSIM_CHECK(
      got == sizeof *offer && memory->valid() && offer->bytes > 0 && offer->bytes <= kImportBytes * 64,
      ncclRemoteError, "a rank of this host is gone, or offers what is no memory");
  return ncclSuccess;
}

class Exchange {
 public:
  Exchange(Communicator* communicator, const Limits& limits)
      : communicator_(*communicator), limits_(limits) {}

  ncclResult_t run() {
    NCCLSIM_TRY(DeviceMemory::make(communicator_.device, kImportBytes, &own_));
    NCCLSIM_TRY(listen());
    // All ranks listen before any rank connects.
    NCCLSIM_TRY(meet_all());
    for (const RankInfo& info : communicator_.table) {
      if (info.rank == communicator_.rank ||
          info.host_hash != communicator_.table[static_cast<std::size_t>(communicator_.rank)].host_hash)
        continue;
      NCCLSIM_TRY(info.rank > communicator_.rank ? offer_to(info.rank) : answer_one());
    }
    communicator_.imports.push_back(std::move(own_));
    return ncclSuccess;
  }

 private:
  ncclResult_t listen() {
    socklen_t bytes = 0;
    const sockaddr_un address = name_of_rank(communicator_.secret, communicator_.rank, &bytes);
    listener_ = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const bool listens = ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
                         ::listen(listener_.get(), kMaxRanks) == 0;
    NCCLSIM_CHECK(listens, ncclSystemError, "no Unix socket: %s", std::strerror(errno));
    return ncclSuccess;
  }

  ncclResult_t meet_all() {
    std::vector<Flow> flows;
    std::vector<char> bytes(static_cast<std::size_t>(communicator_.ranks));
    static const char one = 1;
    for (int peer = 0; peer < communicator_.ranks; peer++) {
      if (peer == communicator_.rank) continue;
      flows.push_back({peer, {{&one, 1}}, {{&bytes[static_cast<std::size_t>(peer)], 1, nullptr}}});
    }
    return communicator_.control.exchange(flows, limits_);
  }

  ncclResult_t offer_to(int rank) {
    socklen_t bytes = 0;
    const sockaddr_un address = name_of_rank(communicator_.secret, rank, &bytes);
    const Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    NCCLSIM_CHECK(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0,
                  ncclRemoteError, "rank %d of this host cannot be reached: %s", rank, std::strerror(errno));
    NCCLSIM_TRY(give(socket.get()));
    return take(socket.get());
  }

  ncclResult_t answer_one() {
    for (;;) {
      NCCLSIM_TRY(wait_readable(listener_.get(), limits_));
      const Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!is_own_user(socket.get())) continue;
      NCCLSIM_TRY(take(socket.get()));
      return give(socket.get());
    }
  }

  static bool is_own_user(int socket) {
    ucred peer{};
    socklen_t bytes = sizeof peer;
    return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == ::geteuid();
  }

  ncclResult_t give(int socket) {
    int memory = -1;
    NCCLSIM_TRY(own_->export_to(&memory));
    const Descriptor owner(memory);
    return send_offer(socket, {communicator_.secret, communicator_.rank, 0, own_->bytes()}, memory);
  }

  ncclResult_t take(int socket) {
    Offer offer;
    Descriptor memory;
    NCCLSIM_TRY(receive_offer(socket, limits_, &offer, &memory));
    NCCLSIM_CHECK(offer.secret == communicator_.secret, ncclRemoteError,
                  "a stranger offers memory to this rank");
    std::unique_ptr<DeviceMemory> imported;
    NCCLSIM_TRY(DeviceMemory::import(communicator_.device, memory.get(), offer.bytes, &imported));
    communicator_.imports.push_back(std::move(imported));
    return ncclSuccess;
  }

  Communicator& communicator_;
  const Limits& limits_;
  std::unique_ptr<DeviceMemory> own_;
  Descriptor listener_;
};

}  // namespace

ncclResult_t exchange_imports(Communicator* communicator, const Limits& limits) {
  return Exchange(communicator, limits).run();
}

}  // namespace ncclsim
