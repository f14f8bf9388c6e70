// SPDX-License-Identifier: Apache-2.0
// Tests commands that wait. The commands show the subject of the wait, and end at the first signal or at
// their time limit.
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

// A standard error stream that simulates an impatient user. It waits for a text, sends a signal, and repeats
// both for the next step.
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

// Runs the command against a coordinator that answers only POSTs, and only if `answer_to_post` is set.
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
  std::string answer_to_post;  // empty: the order receives no answer
  int code;
  std::string last_line;  // a part of the last line
};

class Waiting : public testing::TestWithParam<Case> {};

TEST_P(Waiting, WaitShowsItsSubjectAndEndsAtTheFirstSignal) {
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
             "the job keeps running; `gpumigrate wait train` waits again"},
        Case{{"stop", "train"},
             "the end of job train (stopping)",
             kRunning,
             2,
             "the job is still being stopped"},
        Case{{"stop", "train"}, "the end of job train", "", 6, "before the coordinator answered"},
        Case{{"run", "--detach", "--", "x"}, "a node to start the job", "", 6, "Interrupted before"},
        Case{{"snapshot", "train"},
             "snapshot of train",
             "",
             6,
             "`gpumigrate images` show whether the snapshot has begun"},
        Case{{"snapshot", "train"}, "snapshot of train (copying)", kTask, 6, "snapshot of train continues"},
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
        Case{{"unprotect", "train"}, "the coordinator to end the protection", "", 6, "Interrupted before"},
        Case{{"backup", "/nonexistent/file"}, "the coordinator's copy", "", 2, "Interrupted before"},
        Case{{"images", "rm", "j3.v1@node-a"}, "image j3.v1@node-a", "", 6, "Interrupted before"}));

// The first signal ends the command's wait for a job or a move once its id is known, and the command reports
// the effect.
TEST(WaitingForAnOrderThatIsFollowed, FirstSignalPrintsItsEffectAndTheSecondEndsTheCommand) {
  for (const auto& [arguments, note] :
       {std::pair(std::vector<std::string>{"run", "--", "x"}, "the job is stopped once its id is known"),
        std::pair(std::vector<std::string>{"migrate", "train"},
                  "the move is aborted once its id is known")}) {
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

TEST(WaitingOnATerminal, WaitRewritesOneLineAndRemovesTheLine) {
  const Ended ended = run_impatiently({"wait", "train"}, "the end of job train", "", true);
  EXPECT_EQ(ended.code, 2);
  EXPECT_TRUE(ended.err.starts_with("\r0 s: waiting for the end of job train\x1b[K")) << ended.err;
  EXPECT_TRUE(has(ended.err, "\r\x1b[Kgpumigrate: Interrupted while waiting for the end of job train"))
      << ended.err;
}

TEST(WaitingWithALimit, WaitEndsAtTheLimitAndReportsTheContinuingWork) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json(kTask); });
  const Ended snapshot = run(coordinator.home(), {"snapshot", "train", "--timeout", "0"});
  EXPECT_EQ(snapshot.code, 6);
  EXPECT_TRUE(has(snapshot.err, "snapshot of train continues")) << snapshot.err;
  FakeCoordinator running([](const FakeRequest&) { return json(kRunning); });
  const Ended wait = run(running.home(), {"wait", "train", "--timeout", "1ms"});
  EXPECT_EQ(wait.code, 124);
  EXPECT_TRUE(has(wait.err, "Timed out waiting for the end of job train (running); the job keeps running"))
      << wait.err;
  EXPECT_EQ(run(running.home(), {"stop", "train", "--timeout", "0"}).code, 2);
}

struct Limited {
  std::vector<std::string> arguments;
  std::string waits_for;
  std::string goes_on;
};

// Each command ends at its limit, whether the order receives no answer or the operation continues.
TEST(WaitingWithALimit, EachVerbEndsWith124AtTheLimitAndReportsTheContinuingWork) {
  const std::string order = "the end of migration m7";
  const std::vector<Limited> limited = {
      {{"watch", "m7"}, order, "`gpumigrate watch m7` shows whether it continues"},
      {{"abort", "m7"}, order, "`gpumigrate watch m7`"},
      {{"resolve", "m7", "--at", "source"}, order, "`gpumigrate watch m7`"},
      {{"adopt", "5", "--node", "node-a"}, "a node to adopt process 5", "`gpumigrate jobs`"},
      {{"protect", "train", "--every", "5m"}, "the coordinator to protect job train", "`gpumigrate describe"},
      {{"unprotect", "train"}, "the coordinator to end the protection of job train", "`gpumigrate describe"},
      {{"images", "rm", "j3.v1@node-a"}, "image j3.v1@node-a to be removed", "`gpumigrate images`"},
      {{"node", "rm", "node-b"}, "node node-b to be removed", "`gpumigrate nodes`"},
      {{"backup", "/nonexistent/file"}, "the coordinator's copy", "the next backup replaces"},
      {{"drain", "node-a"}, "the end of the drain of node-a", "`gpumigrate drains node-a --watch`"},
      {{"drains", "d1", "--watch"}, "the end of the drain of d1", "`gpumigrate drains d1 --watch`"},
      {{"rebalance", "--apply"}, "the end of the rebalance", "`gpumigrate migrations`"},
      {{"run", "--detach"}, "a node to start the job", "`gpumigrate jobs`"},
      {{"run"}, "a node to start the job", "`gpumigrate jobs`"}};
  const auto open = [](const FakeRequest&) {
    return json(R"({"id":"m7","revision":1,"state":"running","open":true,"jobs":[],"moves":[]})");
  };
  const auto silent = [](const FakeRequest&) { return FakeAnswer{.silent = true}; };
  const std::vector<std::string> followed = {"watch", "abort", "resolve", "drain", "drains", "rebalance"};
  for (const Limited& one : limited) {
    const bool is_followed = std::count(followed.begin(), followed.end(), one.arguments.front()) > 0;
    FakeCoordinator coordinator(is_followed ? FakeCoordinator::Handler(open)
                                            : FakeCoordinator::Handler(silent));
    std::vector<std::string> line = one.arguments;
    line.insert(line.end(), {"--timeout", "1ms"});
    if (line.front() == "run") line.insert(line.end(), {"--", "x"});
    const Ended ended = run(coordinator.home(), line);
    EXPECT_EQ(ended.code, 124) << line.front() << ": " << ended.err;
    EXPECT_TRUE(has(ended.err, "Timed out waiting for " + one.waits_for)) << ended.err;
    EXPECT_TRUE(has(ended.err, one.goes_on)) << ended.err;
    EXPECT_EQ(ended.err.find("gpumigrate: "), ended.err.rfind("gpumigrate: ")) << ended.err;
  }
}

TEST(WaitingWithALimit, AnInvalidLimitIsRefusedWithoutARequest) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json(kRunning); });
  for (const char* verb : {"wait", "stop", "snapshot", "suspend", "resume", "restore"})
    EXPECT_EQ(run(coordinator.home(), {verb, "train", "--timeout", "soon"}).code, 64) << verb;
  for (const char* verb : {"watch", "abort", "adopt", "unprotect", "backup", "drain"})
    EXPECT_EQ(run(coordinator.home(), {verb, "5", "--timeout", "soon"}).code, 64) << verb;
  EXPECT_EQ(run(coordinator.home(), {"local", "down", "--timeout", "soon"}).code, 64);
  EXPECT_TRUE(coordinator.requests().empty());
}

}  // namespace
}  // namespace ckpt::cli
