// SPDX-License-Identifier: Apache-2.0
// Moves are aborted, or lose the other mover, while another move continues. Lanes end repeatedly under full
// load at random moments. All movers are child processes of this test, so that the test detects a mover that
// UCX ends with signal 6. The lane of the continuing move must not be affected.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/datapath/transport/transport.h"
#include "tests/unit/libckpt/datapath/transport/processes.h"

namespace ckpt::transport {
namespace {

constexpr SessionToken kToken = {std::byte{9}};
constexpr std::size_t kAborted = 5;  // concurrent moves, in addition to the move that continues
constexpr int kAborts = 60;          // consecutive aborts of each move
constexpr std::size_t kVictims = 3;  // concurrent movers that are killed
constexpr int kKills = 25;           // number of kills on each line
constexpr std::size_t kPayloadBytes = 64 * 1024;
constexpr std::size_t kSmallBytes =
    20 * 1024;  // UCX sends smaller messages at once, and larger messages when the peer requests them
constexpr std::size_t kWindow = 8;
constexpr Nanos kDeadline = 60'000'000'000;

enum class Role { kSource, kTarget };

// One end of a lane. The source's end sends continuously; the target's end accepts every message.
struct End final : LaneHandler {
  explicit End(Role role) : role(role) {}
  const Role role;
  bool open = false;
  std::size_t in_flight = 0;
  std::size_t passed = 0;
  std::size_t next = 0;
  std::optional<Error> closed;
  std::vector<std::byte> ring = std::vector<std::byte>(kWindow * kPayloadBytes, std::byte{1});

  std::span<std::byte> slot(std::size_t bytes) {
    return std::span(ring).subspan(next++ % kWindow * kPayloadBytes, bytes);
  }
  void on_open() override { open = true; }
  std::span<std::byte> on_payload_begin(std::span<const std::byte>, std::size_t bytes) override {
    return slot(bytes);
  }
  void on_message(std::span<const std::byte>, std::span<const std::byte>) override { ++passed; }
  void on_sent(std::uint64_t) override {
    --in_flight;
    ++passed;
  }
  void on_closed(const Error& error) override { closed = error; }

  void step(Lane& lane) {
    const std::byte header[32] = {};
    while (role == Role::kSource && open && !closed && in_flight < kWindow) {
      const std::size_t bytes = next % 4 == 0 ? kSmallBytes : kPayloadBytes;
      if (!lane.send(header, slot(bytes), next).has_value()) break;
      ++in_flight;
    }
    if (!lane.progress()) lane.wait(1'000'000);
  }
};

bool is_gone(int fd) {
  pollfd line{fd, POLLRDHUP, 0};
  return ::poll(&line, 1, 0) == 1;
}

// Drives the lane until the lane has ended. Calls `ends` repeatedly; a result of true closes the lane.
// Returns the failure, or an empty text.
template <class Ends>
std::string live_through(Lane& lane, End& end, int line, Ends ends) {
  Nanos deadline = now_ns() + kDeadline;
  std::size_t passed = 0;
  while (!end.closed) {
    if (std::exchange(passed, end.passed) != end.passed) deadline = now_ns() + kDeadline;
    if (now_ns() > deadline)
      return "the lane stands still and has not ended, " + std::to_string(passed) + " messages passed";
    if (!end.open && is_gone(line)) return "the other mover is gone";
    end.step(lane);
    if (!end.closed && ends()) lane.close();
  }
  return end.open ? "" : "the lane never opened: " + end.closed->to_string();
}

Result<std::unique_ptr<Lane>> make_lane(Transport& transport, End& end, int line) {
  if (end.role == Role::kTarget) {
    CKPT_TRY(lane, transport.listen(kToken, end));
    if (!write_line(line, lane->address())) return Error(ErrorCode::kUnavailable, "The source is gone");
    return lane;
  }
  const auto address = read_line(line);
  if (!address) return Error(ErrorCode::kUnavailable, "The target is gone");
  return transport.connect(*address, kToken, end);
}

// Runs a move that is aborted repeatedly. Both ends derive from the seed which end aborts, after how many
// messages, and after which delay.
std::string be_aborted(Transport& transport, Role role, int line, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < kAborts; ++i) {
    const bool mine = (random() % 2 == 0) == (role == Role::kSource);
    const std::size_t after = 1 + random() % 16;
    const auto later = static_cast<Nanos>(random() % 200'000);
    End end(role);
    auto lane = make_lane(transport, end, line);
    if (!lane.has_value()) return lane.error().to_string();
    std::optional<Nanos> when;
    const std::string wrong = live_through(**lane, end, line, [&] {
      if (end.passed >= after && !when) when = now_ns() + later;
      return mine && when && now_ns() >= *when;
    });
    if (!wrong.empty()) return "round " + std::to_string(i) + ": " + wrong;
  }
  return "";
}

// Runs the continuing move until all other moves have ended.
std::string go_on(Transport& transport, Role role, int line, const std::atomic<std::size_t>& others) {
  End end(role);
  auto lane = make_lane(transport, end, line);
  if (!lane.has_value()) return lane.error().to_string();
  const bool source = role == Role::kSource;
  const std::string wrong = live_through(**lane, end, line, [&] { return source && others.load() == 0; });
  if (!wrong.empty()) return wrong;
  if (source) return others.load() == 0 && write_line(line, "over") ? "" : end.closed->to_string();
  return read_line(line) == "over" ? "" : "ended before its time: " + end.closed->to_string();
}

// Runs the source's side of moves to movers that are killed.
std::string lose_targets(Transport& transport, int line) {
  for (int i = 0; i < kKills; ++i) {
    End end(Role::kSource);
    auto lane = make_lane(transport, end, line);
    if (!lane.has_value()) return lane.error().to_string();
    bool told = false;
    const std::string wrong = live_through(**lane, end, line, [&] {
      if (end.passed > 0 && !told) told = write_line(line, "streams");
      return false;
    });
    if (!wrong.empty()) return "round " + std::to_string(i) + ": " + wrong;
  }
  return "";
}

// Runs a mover with one line per move. The first line belongs to the continuing move, the other lines to the
// moves that end. Returns true if all moves passed.
template <class Other>
bool be_a_mover(const std::string& transport_name, Role role, const std::vector<int>& lines, Other other) {
  auto transport = make_transport(transport_name);
  if (!transport.has_value()) return false;
  std::atomic<std::size_t> others{lines.size() - 1};
  std::atomic<bool> well{true};
  const auto judge = [&well, role, &lines](std::size_t i, const std::string& wrong) {
    if (wrong.empty()) return;
    std::fprintf(stderr, "%s %zu: %s\n", role == Role::kSource ? "source" : "target", i, wrong.c_str());
    ::shutdown(lines[i], SHUT_RDWR);
    well = false;
  };
  std::vector<std::jthread> moves;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    moves.emplace_back([&, i] {
      judge(i, other(**transport, lines[i], i));
      --others;
    });
  }
  judge(0, go_on(**transport, role, lines[0], others));
  moves.clear();
  return well;
}

// The lines between both processes: this process's ends and the peer's ends.
struct Lines {
  explicit Lines(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      auto [one, other] = make_line();
      ours.push_back(std::move(one));
      theirs.push_back(std::move(other));
    }
  }
  std::vector<UniqueFd> ours;
  std::vector<UniqueFd> theirs;
};

class EndingLanes : public ::testing::TestWithParam<const char*> {
 protected:
  static std::vector<std::string> as(const char* role) { return {role, GetParam()}; }
};

TEST_P(EndingLanes, AbortByEitherEndAffectsNoOtherLane) {
  Lines lines(1 + kAborted);
  const pid_t source = spawn_again(as("--source"), lines.ours);
  const pid_t target = spawn_again(as("--target"), lines.theirs);
  lines = Lines(0);
  EXPECT_EQ(end_of(source), "") << "the source's mover";
  EXPECT_EQ(end_of(target), "") << "the target's mover";
}

// Starts movers one after another, and kills each mover once the source streams to it. Returns the failure,
// or an empty text.
std::string kill_movers(const char* transport, int source, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < kKills; ++i) {
    Lines line(1);
    const pid_t victim = spawn_again({"--victim", transport}, line.theirs);
    line.theirs.clear();
    const auto address = read_line(line.ours[0].get());
    const bool streams = address && write_line(source, *address) && read_line(source) == "streams";
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    ::kill(victim, SIGKILL);
    (void)end_of(victim);
    if (!streams) return "round " + std::to_string(i) + ": the source does not stream to it";
  }
  return "";
}

TEST_P(EndingLanes, KilledMoverAffectsNoOtherLane) {
  Lines lines(1 + kVictims);
  Lines lasting(1);
  const pid_t target = spawn_again(as("--target"), lasting.theirs);
  const int go_on_line = lines.ours[0].get();
  const pid_t source = spawn_again(as("--loser"), lines.theirs);
  lines.theirs.clear();
  lasting.theirs.clear();
  const auto address = read_line(lasting.ours[0].get());
  ASSERT_TRUE(address && write_line(go_on_line, *address));
  std::vector<std::string> wrong(kVictims);
  {
    std::vector<std::jthread> victims;
    for (std::size_t i = 0; i < kVictims; ++i)
      victims.emplace_back([&, i] { wrong[i] = kill_movers(GetParam(), lines.ours[1 + i].get(), 100 + i); });
  }
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
  const auto over = read_line(go_on_line);
  EXPECT_EQ(over, "over");
  if (over) (void)write_line(lasting.ours[0].get(), *over);
  lasting = Lines(0);
  EXPECT_EQ(end_of(source), "") << "the source's mover";
  EXPECT_EQ(end_of(target), "") << "the target's mover";
}

INSTANTIATE_TEST_SUITE_P(Transports, EndingLanes, ::testing::Values("ucx", "tls"),
                         [](const auto& info) { return std::string(info.param); });

// Runs a mover process. Its first argument names its role.
bool live(const std::string& name, const std::string& transport_name, const std::vector<int>& lines) {
  if (name == "--loser") {
    return be_a_mover(transport_name, Role::kSource, lines, [](Transport& transport, int line, std::size_t) {
      return lose_targets(transport, line);
    });
  }
  const Role role = name == "--source" ? Role::kSource : Role::kTarget;
  return be_a_mover(transport_name, role, lines, [role](Transport& transport, int line, std::size_t seed) {
    return be_aborted(transport, role, line, seed);
  });
}

}  // namespace

int run_aborted_lanes_tests(int argc, char** argv) {
  if (argc > 3 && std::string_view(argv[1]).starts_with("--") &&
      !std::string_view(argv[1]).starts_with("--gtest")) {
    std::vector<int> lines;
    for (int i = 3; i < argc; ++i) lines.push_back(std::atoi(argv[i]));
    return live(argv[1], argv[2], lines) ? 0 : 1;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace ckpt::transport

int main(int argc, char** argv) {
  return ckpt::transport::run_aborted_lanes_tests(argc, argv);
}
