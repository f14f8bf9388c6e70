// SPDX-License-Identifier: Apache-2.0
// Tests of how ranks find each other and connect. Unknown processes also try to connect.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>
#include <thread>

#include "tests/nccl/support/ncclsim.h"
#include "tests/simulators/ncclsim/transport/bootstrap_wire.h"

namespace nccl_test {
namespace {

TEST_F(NcclsimTest, RanksConnectAtTheFirstOperation) {
  if (!begin(2)) return;
  const int connected = sockets() + (rank_ == 1 ? 1 : 0);
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  EXPECT_EQ(connected, sockets());
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  EXPECT_EQ(connected, sockets());
  end();
}

TEST_F(NcclsimTest, RanksConnectDuringInitIfConfigured) {
  if (!begin(2, with("NCCL_RUNTIME_CONNECT", "0"))) return;
  const int before = sockets();
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  EXPECT_EQ(before, sockets());
  end();
}

// Returns the bootstrap root's address, which is in the id, as with NCCL.
sockaddr_in root_of(const ncclUniqueId& id) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  std::memcpy(&address.sin_addr, id.internal + 16, 4);
  std::memcpy(&address.sin_port, id.internal + 20, 2);
  return address;
}

// Sends a rank's registration, which may be wrong.
int register_with(const ncclUniqueId& id, std::uint64_t wrong, int rank, int ranks) {
  ncclsim::Registration registration;
  std::memcpy(&registration.secret, id.internal + 8, sizeof registration.secret);
  registration.secret += wrong;
  registration.info.rank = rank;
  registration.info.ranks = ranks;
  const sockaddr_in root = root_of(id);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(0, ::connect(socket, reinterpret_cast<const sockaddr*>(&root), sizeof root));
  EXPECT_EQ(ssize_t{sizeof registration}, ::send(socket, &registration, sizeof registration, MSG_NOSIGNAL));
  return socket;
}

TEST_F(NcclsimTest, ARegistrationWithoutTheSecretIsIgnored) {
  if (!as_rank(2)) return;
  const ncclUniqueId id = shared_id();
  const int stranger = rank_ == 0 ? register_with(id, 1, 1, 2) : -1;
  exchange();
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommInitRank(&communicator_, 2, id, rank_));
  if (rank_ == 0) ::close(stranger);
  end();
}

TEST_F(NcclsimTest, ARegistrationOutOfRangeIsIgnored) {
  if (!as_rank(2)) return;
  const ncclUniqueId id = shared_id();
  std::vector<int> strangers;
  const std::pair<int, int> wrong[] = {{-1, 2}, {2, 2}, {0, 0}, {1, 1 << 30}};
  for (const auto& [rank, ranks] : wrong) {
    if (rank_ == 0) strangers.push_back(register_with(id, 0, rank, ranks));
  }
  exchange();
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommInitRank(&communicator_, 2, id, rank_));
  for (const int stranger : strangers) ::close(stranger);
  end();
}

TEST_F(NcclsimTest, UnknownConnectionsAreNotAcceptedAsRanks) {
  if (!as_rank(2)) return;
  const ncclUniqueId id = shared_id();
  const sockaddr_in root = root_of(id);
  std::vector<int> strangers;
  for (int i = 0; rank_ == 0 && i < 8; i++) {
    strangers.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(0, ::connect(strangers.back(), reinterpret_cast<const sockaddr*>(&root), sizeof root));
    // Some connections are silent, some end in the middle, and some send invalid registrations.
    const std::string garbage(static_cast<std::size_t>(i) * 40, 'x');
    if (i > 0) {
      EXPECT_LT(0, ::send(strangers.back(), garbage.data(), garbage.size(), MSG_NOSIGNAL));
    }
    if (i % 3 == 1) ::shutdown(strangers.back(), SHUT_RDWR);
  }
  exchange();
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommInitRank(&communicator_, 2, id, rank_));
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  for (const int stranger : strangers) ::close(stranger);
  end();
}

// Returns the ports that this process listens on.
std::vector<sockaddr_in> listeners() {
  std::vector<sockaddr_in> found;
  for (int fd = 3; fd < 256; fd++) {
    int listens = 0;
    sockaddr_in address{};
    socklen_t bytes = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || listens == 0) continue;
    bytes = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
        address.sin_family == AF_INET)
      found.push_back(address);
  }
  return found;
}

TEST_F(NcclsimTest, UnknownConnectionsAreNotAcceptedAsPeers) {
  if (!begin(2)) return;
  // A connection like that of rank 0, except for the number that only the ranks know. It is made before rank
  // 0 connects.
  struct {
    std::uint64_t secret = 0;
    std::uint32_t purpose = 0;
    std::int32_t from = 0;
    std::int32_t to = 1;
    std::uint32_t unused = 0;
  } hello;
  std::vector<int> strangers;
  for (const sockaddr_in& at : rank_ == 1 ? listeners() : std::vector<sockaddr_in>{}) {
    for (const std::size_t bytes : {sizeof hello, sizeof hello - 3, std::size_t{0}}) {
      strangers.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ASSERT_EQ(0, ::connect(strangers.back(), reinterpret_cast<const sockaddr*>(&at), sizeof at));
      ASSERT_EQ(static_cast<ssize_t>(bytes), ::send(strangers.back(), &hello, bytes, MSG_NOSIGNAL));
    }
  }
  EXPECT_EQ(rank_ == 1 ? 6U : 0U, strangers.size());
  exchange();
  ASSERT_NCCL(ncclSuccess, all_reduce());
  ncclComm_t child = nullptr;
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommSplit(communicator_, 0, 0, &child, nullptr));
  sync();
  for (const int stranger : strangers) ::close(stranger);
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(child));
  end();
}

TEST_F(NcclsimTest, ABlockingInitHasADeadline) {
  if (!as_rank(1, with("NCCLSIM_TIMEOUT_MS", "50"))) return;
  EXPECT_NCCL(ncclSystemError, nccl().ncclCommInitRank(&communicator_, 2, shared_id(), 0));
  EXPECT_EQ(nullptr, communicator_);
}

TEST_F(NcclsimTest, AGroupWithAnInvalidInitStartsNoInit) {
  if (!as_rank(1)) return;
  const ncclUniqueId id = shared_id();
  ncclComm_t wrong = nullptr;
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupStart());
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommInitRank(&communicator_, 1, id, 0));
  EXPECT_NE(nullptr, communicator_);
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommInitRank(&wrong, 1, id, 1));
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclGroupEnd());
  EXPECT_EQ(nullptr, communicator_);
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommInitRank(&communicator_, 1, id, 0));  // the id is still valid
  end();
}

TEST_F(NcclsimTest, AnotherThreadEndsABlockingInit) {
  if (!as_rank(1)) return;
  const ncclUniqueId id = shared_id();
  auto begun =
      std::async(std::launch::async, [&] { return nccl().ncclCommInitRank(&communicator_, 2, id, 0); });
  // The handle is set while the call is still running, as with NCCL.
  std::atomic_ref<ncclComm_t> handle(communicator_);
  while (handle.load() == nullptr) std::this_thread::yield();
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommAbort(handle.load()));
  EXPECT_NE(ncclSuccess, begun.get());
}

TEST_F(NcclsimTest, RanksWithInconsistentParametersAreRefused) {
  if (!as_rank(2)) return;
  ncclUniqueId id = shared_id();
  EXPECT_NCCL(ncclInvalidUsage, nccl().ncclCommInitRank(&communicator_, 2 + rank_, id, rank_));
  EXPECT_NE(std::string::npos, last_error().find("disagree")) << last_error();
  id = shared_id();
  EXPECT_NCCL(ncclInvalidUsage, nccl().ncclCommInitRank(&communicator_, 3, id, 1));
  EXPECT_NE(std::string::npos, last_error().find("twice")) << last_error();
  const ncclUniqueId garbage{};
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommInitRank(&communicator_, 2, garbage, rank_));
  exchange();
}

TEST_F(NcclsimTest, InitFailsIfARankIsKilled) {
  RankOptions options;
  options.killed = {1};
  if (!as_rank(3, options)) return;
  const ncclUniqueId id = shared_id();
  if (rank_ == 1) {
    register_with(id, 0, 1, 3);  // registers with the root's table, which still lacks a third rank
    exchange();
    kill_self();
  }
  exchange();
  if (rank_ == 0) {
    EXPECT_NCCL(ncclRemoteError, nccl().ncclCommInitRank(&communicator_, 3, id, 0));
  }
}

}  // namespace
}  // namespace nccl_test
