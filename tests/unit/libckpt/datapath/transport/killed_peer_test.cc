// SPDX-License-Identifier: Apache-2.0
// The other mover is another process, and the test kills it. The lane must end, with traffic and without. The
// child is this program again, as `transport_process_test --peer TRANSPORT ADDRESS MESSAGES`.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/unit/libckpt/datapath/transport/peer.h"
#include "tests/unit/libckpt/datapath/transport/processes.h"

namespace ckpt::transport {
namespace {

constexpr SessionToken kToken = {std::byte{9}};

// Runs the child: connects, sends the given number of messages of 1 MiB, and waits until it is killed.
int be_the_peer(const std::string& transport_name, const std::string& address, int messages) {
  Peer source;
  auto transport = make_transport(transport_name);
  if (!transport.has_value()) return 2;
  auto lane = (*transport)->connect(address, kToken, source);
  if (!lane.has_value()) return 3;
  source.start(*std::move(lane));
  for (int i = 0; i < messages; ++i) source.send({Bytes(16), Bytes(1 << 20)});
  (void)source.wait_closed();
  return 0;
}

class KilledPeerTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "rdma" && rdma_address() == nullptr)
      GTEST_SKIP() << "GPUMIGRATE_TEST_RDMA names no address of an RDMA device (tests/vm)";
  }
  void start(int messages) {
    transport_ = *make_transport(GetParam());
    auto lane = transport_->listen(kToken, target_);
    ASSERT_TRUE(lane.has_value());
    const std::string address = (*lane)->address();
    target_.start(*std::move(lane));
    const std::string count = std::to_string(messages);
    const char* arguments[] = {"/proc/self/exe", "--peer",      GetParam(),
                               address.c_str(),  count.c_str(), nullptr};
    ASSERT_EQ(::posix_spawn(&child_, arguments[0], nullptr, nullptr, const_cast<char**>(arguments), environ),
              0);
    ASSERT_TRUE(target_.wait_open());
  }
  void TearDown() override { kill_child(); }
  void kill_child() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = 0;
  }

  std::unique_ptr<Transport> transport_;
  Peer target_;
  pid_t child_ = 0;
};

TEST_P(KilledPeerTest, LaneClosesIfThePeerIsKilledWhileSending) {
  start(1'000'000);
  ASSERT_TRUE(target_.wait_received(20));
  kill_child();
  ASSERT_TRUE(target_.wait_closed());
  EXPECT_EQ(target_.read([](const Peer::State& s) { return s.closed->code(); }), ErrorCode::kUnavailable);
}

TEST_P(KilledPeerTest, LaneClosesIfThePeerIsKilledWhileIdle) {
  start(1);
  ASSERT_TRUE(target_.wait_received(1));
  kill_child();
  ASSERT_TRUE(target_.wait_closed());
  EXPECT_EQ(target_.read([](const Peer::State& s) { return s.closed->code(); }), ErrorCode::kUnavailable);
}

TEST_P(KilledPeerTest, LaneClosesIfThePeerIsKilledWhileReceiving) {
  start(0);
  for (int i = 0; i < 200; ++i) target_.send({Bytes(16), Bytes(1 << 20)});
  ASSERT_TRUE(target_.wait_sent(20));
  kill_child();
  ASSERT_TRUE(target_.wait_closed());
  EXPECT_EQ(target_.read([](const Peer::State& s) { return s.closed_times; }), 1);
}

TEST_P(KilledPeerTest, LaneClosesIfThePeerIsKilledWhileStopped) {
  // The child is stopped while payloads are in flight, so its sockets are full. Killing the child must not
  // leave this end waiting.
  start(0);
  ASSERT_EQ(::kill(child_, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child_, &status, WUNTRACED), child_);
  for (int i = 0; i < 50; ++i) target_.send({Bytes(16), Bytes(4 << 20)});
  kill_child();
  ASSERT_TRUE(target_.wait_closed());
}

INSTANTIATE_TEST_SUITE_P(Transports, KilledPeerTest, ::testing::Values("ucx", "tls", "rdma"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace

int run_killed_peer_tests(int argc, char** argv) {
  if (argc == 5 && std::strcmp(argv[1], "--peer") == 0)
    return be_the_peer(argv[2], argv[3], std::atoi(argv[4]));
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace ckpt::transport

int main(int argc, char** argv) {
  return ckpt::transport::run_killed_peer_tests(argc, argv);
}
