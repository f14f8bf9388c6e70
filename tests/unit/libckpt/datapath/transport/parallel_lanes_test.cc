// SPDX-License-Identifier: Apache-2.0
// Several moves between two movers at a time: lanes open while other lanes close. The movers are two
// processes, as in production. The child is this program again, as `transport_parallel_test --peer
// TRANSPORT`. No lane may affect another lane.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "tests/unit/libckpt/datapath/transport/peer.h"
#include "tests/unit/libckpt/datapath/transport/processes.h"

namespace ckpt::transport {
namespace {

constexpr SessionToken kToken = {std::byte{9}};
constexpr int kMoves = 6;    // concurrent moves
constexpr int kLanes = 2;    // lanes of each move
constexpr int kRounds = 40;  // consecutive rounds
constexpr int kMessages = 4;

// Runs the target's side of one move. Its lanes accept every message, and close when the source's lanes
// close.
void be_the_target(Transport& transport, int fd) {
  while (true) {
    std::array<Peer, kLanes> lanes;
    for (Peer& peer : lanes) {
      auto lane = transport.listen(kToken, peer);
      if (!lane.has_value()) std::abort();
      if (!write_line(fd, (*lane)->address())) return;
      peer.start(*std::move(lane));
    }
    for (Peer& peer : lanes) {
      const bool well = peer.wait_received(kMessages);
      const std::string reason = peer.read(
          [](const Peer::State& s) { return s.closed ? s.closed->to_string() : std::string("quiet"); });
      if (!write_line(fd, well ? "well" : reason)) return;
    }
    if (read_line(fd) != "next") return;
  }
}

int be_the_peer(const std::string& transport_name, const std::vector<int>& sockets) {
  auto transport = make_transport(transport_name);
  if (!transport.has_value()) return 2;
  std::vector<std::jthread> moves;
  for (const int fd : sockets) moves.emplace_back([&transport, fd] { be_the_target(**transport, fd); });
  return 0;
}

class ParallelLanesTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::vector<UniqueFd> theirs;
    for (int i = 0; i < kMoves; ++i) {  // the addresses of each move are sent over a separate line
      auto [one, other] = make_line();
      ours_.push_back(std::move(one));
      theirs.push_back(std::move(other));
    }
    child_ = spawn_again({"--peer", GetParam()}, theirs);
    ASSERT_GT(child_, 0);
    transport_ = *make_transport(GetParam());
  }
  void TearDown() override {
    ours_.clear();
    EXPECT_EQ(end_of(child_), "");
  }

  // Runs the source's side of one move repeatedly. Returns the failure, or an empty text.
  std::string move_on(int fd) {
    for (int round = 0; round < kRounds; ++round) {
      std::array<Peer, kLanes> lanes;
      for (Peer& peer : lanes) {
        const auto address = read_line(fd);
        if (!address) return "the target is gone";
        auto lane = transport_->connect(*address, kToken, peer);
        if (!lane.has_value()) return lane.error().to_string();
        peer.start(*std::move(lane));
        for (int i = 0; i < kMessages; ++i) peer.send({Bytes(16), Bytes(100'000)});
      }
      for (Peer& peer : lanes) {
        const bool well = peer.wait_sent(kMessages);
        if (!well)
          return "round " + std::to_string(round) + ": " +
                 peer.read([](const Peer::State& s) { return s.closed ? s.closed->to_string() : "quiet"; });
      }
      for (int i = 0; i < kLanes; ++i) {
        const auto answer = read_line(fd);
        if (answer != "well")
          return "round " + std::to_string(round) + " at the target: " + answer.value_or("gone");
      }
      if (!write_line(fd, round + 1 < kRounds ? "next" : "end")) return "the target is gone";
    }
    return "";
  }

  std::unique_ptr<Transport> transport_;
  std::vector<UniqueFd> ours_;
  pid_t child_ = -1;
};

TEST_P(ParallelLanesTest, LanesOpenWhileOtherLanesClose) {
  std::vector<std::string> wrong(kMoves);
  {
    std::vector<std::jthread> moves;
    for (int i = 0; i < kMoves; ++i)
      moves.emplace_back([this, i, &wrong] { wrong[i] = move_on(ours_[i].get()); });
  }
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

INSTANTIATE_TEST_SUITE_P(Transports, ParallelLanesTest, ::testing::Values("ucx", "tls"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace

int run_parallel_lanes_tests(int argc, char** argv) {
  if (argc > 2 && std::strcmp(argv[1], "--peer") == 0) {
    std::vector<int> sockets;
    for (int i = 3; i < argc; ++i) sockets.push_back(std::atoi(argv[i]));
    return be_the_peer(argv[2], sockets);
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace ckpt::transport

int main(int argc, char** argv) {
  return ckpt::transport::run_parallel_lanes_tests(argc, argv);
}
