// SPDX-License-Identifier: Apache-2.0
// Tests of the owner of a connection. The process id of an ended process may have been reused by another
// process.
#include "agent/keeper/io/peer.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "agent/keeper/rank/descent.h"
#include "tests/unit/agent/keeper/harness.h"

namespace ckpt::keeper {
namespace {

// Checks whether the kernel supports SO_PEERPIDFD (Linux 6.5 and later), which identifies the peer.
bool kernel_can_tell() {
  constexpr int kPeerPidfd = 77;
  auto ends = local::Socket::pair();
  int number = -1;
  socklen_t size = sizeof number;
  if (::getsockopt(ends->first.fd(), SOL_SOCKET, kPeerPidfd, &number, &size) != 0) return false;
  ::close(number);
  return true;
}

struct Connecting {
  std::string path;
  local::Socket socket;
};

int connect_and_end(void* given) {
  auto* connecting = static_cast<Connecting*>(given);
  auto socket = local::Socket::connect(connecting->path);
  if (socket.has_value()) connecting->socket = *std::move(socket);
  ::_exit(0);
}

TEST(PeerTest, ConnectionOfAnExitedProcessHasNoOwner) {
  if (!kernel_can_tell()) GTEST_SKIP() << "this kernel cannot tell";
  const std::string path = "@peer-test-" + std::to_string(::getpid());
  auto listener = local::Listener::create(path);
  ASSERT_TRUE(listener.has_value());
  Connecting connecting{path, {}};
  std::vector<std::byte> stack(1 << 20);
  // The child shares memory and descriptors, so the connection outlives the child.
  const pid_t child = ::clone(connect_and_end, stack.data() + stack.size(),
                              CLONE_VM | CLONE_FILES | CLONE_VFORK | SIGCHLD, &connecting);
  ASSERT_GT(child, 0);
  ASSERT_TRUE(connecting.socket);
  ASSERT_TRUE(wait_readable(listener->fd()));
  const Peer gone(std::move(**listener->accept()));
  EXPECT_EQ(gone.identity()->pid, child);
  EXPECT_TRUE(gone.has_ended());
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(gone.has_ended()) << "its number may be another's now";
  const local::Socket own = std::move(*local::Socket::connect(path));
  ASSERT_TRUE(wait_readable(listener->fd()));
  EXPECT_FALSE(Peer(std::move(**listener->accept())).has_ended());
}

TEST(DescentTest, ProcessLineageContainsTheProcessAndItsAncestors) {
  const std::vector<pid_t> line = line_of(::getpid());
  ASSERT_GE(line.size(), 2u);
  EXPECT_EQ(line[0], ::getpid());
  EXPECT_EQ(line[1], ::getppid());
  EXPECT_TRUE(line_of(0x7fffffff).empty());
}

}  // namespace
}  // namespace ckpt::keeper
