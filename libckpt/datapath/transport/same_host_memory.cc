// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/same_host_memory.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include "libckpt/datapath/transport/session.h"

namespace ckpt::transport {
namespace {

bool runs_this_program(int pid) {
  struct stat own {};
  struct stat theirs {};
  return ::stat("/proc/self/exe", &own) == 0 &&
         ::stat(("/proc/" + std::to_string(pid) + "/exe").c_str(), &theirs) == 0 &&
         own.st_dev == theirs.st_dev && own.st_ino == theirs.st_ino;
}

bool has_ended(int pidfd) {
  pollfd ended{pidfd, POLLIN, 0};
  int ready;
  do {
    ready = ::poll(&ended, 1, 0);
  } while (ready < 0 && errno == EINTR);  // poll() may be interrupted by a signal even if it does not block
  return ready != 0;
}

}  // namespace

SameHostOffer offer_same_host(const SameHostMemory& memory, const SessionToken& token) noexcept {
  if (memory.room.size() < token.size()) return {};
  std::memcpy(memory.room.data(), token.data(), token.size());
  SameHostOffer offer{.pid = static_cast<std::uint64_t>(::getpid()),
                      .address = reinterpret_cast<std::uint64_t>(memory.room.data())};
  if (memory.file < 0) return offer;
  offer.file = static_cast<std::uint64_t>(memory.file);
  offer.mapped_at = reinterpret_cast<std::uint64_t>(memory.mapped.data());
  offer.bytes = memory.mapped.size();
  return offer;
}

std::optional<SameHostReader> SameHostReader::open(const SameHostOffer& offer, const SessionToken& token) {
  if (offer.pid == 0 || offer.pid > static_cast<std::uint64_t>(std::numeric_limits<int>::max()))
    return std::nullopt;
  const int pid = static_cast<int>(offer.pid);
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process || !runs_this_program(pid)) return std::nullopt;
  SameHostReader reader(pid, std::move(process));
  SessionToken shown{};
  if (!reader.read(offer.address, shown) || !tokens_equal(shown, token)) return std::nullopt;
  return reader;
}

Result<void> SameHostReader::read(std::uint64_t address, std::span<std::byte> to) const {
  while (!to.empty()) {
    const iovec local{to.data(), to.size()};
    const iovec remote{reinterpret_cast<void*>(address), to.size()};  // NOLINT(performance-no-int-to-ptr)
    const ssize_t got = ::process_vm_readv(pid_, &local, 1, &remote, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("Cannot read a payload from the peer's memory");
    if (got == 0) return Error(ErrorCode::kIo, "The peer's memory can no longer be read");
    address += static_cast<std::uint64_t>(got);
    to = to.subspan(static_cast<std::size_t>(got));
  }
  if (has_ended(process_.get())) return Error(ErrorCode::kUnavailable, "The peer's process has exited");
  return ok();
}

SameHostMapping SameHostReader::map(const SameHostOffer& offer, LaneHandler& handler) const {
  if (offer.bytes == 0 || offer.file > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) return {};
  UniqueFd file(
      static_cast<int>(::syscall(SYS_pidfd_getfd, process_.get(), static_cast<int>(offer.file), 0)));
  return file ? map_same_host(handler, std::move(file), offer.mapped_at, offer.bytes) : SameHostMapping{};
}

SameHostMapping map_same_host(LaneHandler& handler, UniqueFd file, std::uint64_t there, std::size_t bytes) {
  const std::span<const std::byte> here = handler.map_same_host(std::move(file), bytes);
  return here.size() == bytes ? SameHostMapping{here, there} : SameHostMapping{};
}

SameHostPeer SameHostPeer::open(const SameHostOffer& offer, const SessionToken& token, LaneHandler& handler) {
  SameHostPeer peer;
  peer.reader = SameHostReader::open(offer, token);
  if (peer.reader) peer.mapping = peer.reader->map(offer, handler);
  return peer;
}

PayloadAccess SameHostPeer::access() const noexcept {
  if (!reader) return PayloadAccess::kSent;
  return mapping.here.empty() ? PayloadAccess::kReads : PayloadAccess::kMaps;
}

Result<std::span<const std::byte>> receive_same_host(const SameHostReader& reader,
                                                     const SameHostMapping& mapping, std::uint64_t address,
                                                     std::span<const std::byte> header, std::size_t bytes,
                                                     LaneHandler& handler) {
  if (bytes == 0) return std::span<const std::byte>{};
  if (const auto found = mapping.find(address, bytes); !found.empty()) return found;
  const std::span<std::byte> to = handler.on_payload_begin(header, bytes);
  if (to.size() != bytes) return refused_payload(bytes);
  CKPT_TRYV(reader.read(address, to));
  return std::span<const std::byte>(to);
}

std::span<const std::byte> SameHostMapping::find(std::uint64_t address, std::size_t bytes) const noexcept {
  const std::uint64_t offset = address - there;  // an address before `there` wraps around
  if (offset > here.size() || bytes > here.size() - offset) return {};
  return here.subspan(offset, bytes);
}

}  // namespace ckpt::transport
