// SPDX-License-Identifier: Apache-2.0
// Commands that wait: they show what for, and end at the first signal or at their time limit.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <streambuf>

#include "tests/unit/tools/gpumigrate/run_command.h"

namespace ckpt::cli {
namespace {

const std::string kRunning =
    R"({"id":"j3","name":"train","node":"node-a","gpu":0,"state":"running","exit_code":null})";
const std::string kTask =
    R"({"id":"t5","verb":"snapshot","job":"j3","job_name":"train","open":true,"state":"copying"})";

// Standard error of a user who waits for a text and then sends a signal, and so on.
class Impatient : public std::streambuf {
 public:
  explicit Impatient(std::vector<std::pair<std::string, int>> steps) : steps_(std::move(steps)) {}
  [[nodiscard]] const std::string& seen() const { return seen_; }

 private:
  int overflow(int byte) override {
    if (byte != traits_type::eof()) seen_ += static_cast<char>(byte);
    return byte;
  }
  int sync() override {
    if (next_ < steps_.size() && has(seen_, steps_[next_].first)) ::kill(::getpid(), steps_[next_++].second);
    return 0;
  }

  std::vector<std::pair<std::string, int>> steps_;
  std::size_t next_ = 0;
  std::string seen_;
};

// The command against a coordinator that answers POSTs, if it has an answer, and nothing else.
Ended run_impatiently(const std::vector<std::string>& arguments, const std::string& waits_for,
                      const std::string& answer_to_post, bool terminal = false, int signal = SIGINT) {
  FakeCoordinator coordinator([&](const FakeRequest& request) {
    const bool answered = request.method == "POST" && !answer_to_post.empty();
    return answered ? json(answer_to_post) : FakeAnswer{.silent = true};
  });
  std::ostringstream out;
  Impatient seen({{"waiting for " + waits_for, signal}});
  std::ostream err(&seen);
  Context context{
      .out = out, .err = err, .terminal = terminal, .coordinator = CoordinatorClient(coordinator.home())};
  context.shown_after = std::chrono::milliseconds(1);
  const int code = run_program(arguments, context);
  return {code, out.str(), seen.seen()};
}

struct Case {
  std::vector<std::string> arguments;
  std::string waits_for;
  std::string answer_to_post;  // none: the order itself is left unanswered
  int code;
  std::string last_line;  // a part of it
};

class Waiting : public testing::TestWithParam<Case> {};

TEST_P(Waiting, ShowsWhatForAndEndsAtTheFirstSignal) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Case& c = GetParam();
    const Ended ended = run_impatiently(c.arguments, c.waits_for, c.answer_to_post, false, signal);
    EXPECT_EQ(ended.code, c.code) << ended.err;
    EXPECT_TRUE(has(ended.err, c.last_line)) << ended.err;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Verbs, Waiting,
    testing::Values(
        Case{{"wait", "train"},
             "the end of job train",
             "",
             2,
             "it runs on; `gpumigrate wait train` waits again"},
        Case{
            {"stop", "train"}, "the end of job train (stopping)", kRunning, 2, "the order to stop it stands"},
        Case{{"stop", "train"}, "the end of job train", "", 6, "before the coordinator had answered"},
        Case{{"run", "--detach", "--", "x"}, "a node to start the job", "", 6, "Interrupted before"},
        Case{{"snapshot", "train"},
             "snapshot of train",
             "",
             6,
             "`gpumigrate images` say whether it has begun"},
        Case{{"snapshot", "train"}, "snapshot of train (copying)", kTask, 6, "snapshot of train goes on"},
        Case{{"suspend", "train"}, "suspend of train", "", 6, "Interrupted before"},
        Case{{"resume", "train"}, "resume of train", "", 6, "Interrupted before"},
        Case{{"restore", "train"}, "restore of train", "", 6, "Interrupted before"},
        Case{{"migrate", "train", "--detach"},
             "the coordinator to begin the move",
             "",
             6,
             "Interrupted before"},
        Case{{"protect", "train", "--every", "5m"},
             "the coordinator to protect job train",
             "",
             6,
             "Interrupted before"},
        Case{{"node", "rm", "node-b", "--force"}, "node node-b to be removed", "", 6, "Interrupted before"},
        Case{{"backup", "/nonexistent/file"}, "the coordinator's copy", "", 2, "interrupted"},
        Case{{"images", "rm", "j3.v1@node-a"}, "image j3.v1@node-a", "", 6, "Interrupted before"}));

// A job or a move that is to be followed is ended once it is known: the first signal tells so.
TEST(WaitingForAnOrderThatIsFollowed, TheFirstSignalSaysWhatItDoesAndTheSecondLeavesItAlone) {
  for (const auto& [arguments, note] :
       {std::pair(std::vector<std::string>{"run", "--", "x"}, "the job is stopped once it is known"),
        std::pair(std::vector<std::string>{"migrate", "train"}, "the move is aborted once it is known")}) {
    FakeCoordinator coordinator([](const FakeRequest&) { return FakeAnswer{.silent = true}; });
    Impatient seen({{"waiting for", SIGINT}, {note, SIGTERM}});
    std::ostream err(&seen);
    std::ostringstream out;
    Context context{.out = out, .err = err, .coordinator = CoordinatorClient(coordinator.home())};
    context.shown_after = std::chrono::milliseconds(1);
    const int code = run_program(arguments, context);
    EXPECT_EQ(code, arguments.front() == "run" ? 125 : 6) << seen.seen();
    EXPECT_TRUE(has(seen.seen(), note)) << seen.seen();
  }
}

TEST(WaitingOnATerminal, RewritesOneLineAndTakesItAway) {
  const Ended ended = run_impatiently({"wait", "train"}, "the end of job train", "", true);
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(ended.err.starts_with("\r0 s: waiting for the end of job train\x1b[K")) << ended.err;
  EXPECT_TRUE(has(ended.err, "\r\x1b[Kgpumigrate: Interrupted while waiting for the end of job train"))
      << ended.err;
}

TEST(WaitingWithALimit, EndsAtItAndSaysWhatGoesOn) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json(kTask); });
  const Ended snapshot = run(coordinator.home(), {"snapshot", "train", "--timeout", "0"});
  EXPECT_EQ(snapshot.code, 6);
  EXPECT_TRUE(has(snapshot.err, "snapshot of train goes on")) << snapshot.err;
  FakeCoordinator running([](const FakeRequest&) { return json(kRunning); });
  const Ended wait = run(running.home(), {"wait", "train", "--timeout", "1ms"});
  EXPECT_EQ(wait.code, 124);
  EXPECT_TRUE(has(wait.err, "Timed out waiting for the end of job train (running); it runs on")) << wait.err;
  EXPECT_EQ(run(running.home(), {"stop", "train", "--timeout", "0"}).code, 2);
}

TEST(WaitingWithALimit, ThatIsNoTimeIsRefusedWithoutARequest) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json(kRunning); });
  for (const char* verb : {"wait", "stop", "snapshot", "suspend", "resume", "restore"})
    EXPECT_EQ(run(coordinator.home(), {verb, "train", "--timeout", "soon"}).code, 64) << verb;
  EXPECT_TRUE(coordinator.requests().empty());
}

}  // namespace
}  // namespace ckpt::cli
