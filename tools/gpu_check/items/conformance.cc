// SPDX-License-Identifier: Apache-2.0
// The conformance suites of the driver and of NCCL, test by test. The output is read while a suite runs, not
// its report at the end. So a test that hangs or crashes the suite is named, and the suite continues after
// it.
#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "tools/gpu_check/commands.h"
#include "tools/gpumigrate/local/processes.h"

namespace ckpt::gpu_check {
namespace {

constexpr Nanos kTestPatience = 40'000'000'000;
constexpr int kMaxRestarts = 12;
constexpr std::size_t kShownText = 600;

std::string after(const std::string& line, std::string_view prefix) {
  std::string rest = line.substr(prefix.size());
  const std::size_t time = rest.find(" (");
  return time == std::string::npos ? rest : rest.substr(0, time);
}

class Suite {
 public:
  // Takes the `name` of the suite's program, and in `preload` a library to load in front of the driver, or an
  // empty text.
  Suite(const Setting& setting, Outcome& outcome, std::string name, std::string preload)
      : setting_(setting), outcome_(outcome), name_(std::move(name)), preload_(std::move(preload)) {}

  Result<void> list();
  // Runs the tests that have no result yet. Returns false if the suite must be started again.
  Result<bool> run();
  [[nodiscard]] bool done() const { return results_.size() == tests_.size(); }
  void report();

 private:
  [[nodiscard]] std::string program() const;
  [[nodiscard]] bench::Command command(const std::vector<std::string>& arguments) const;
  void handle_line(const std::string& line);
  void give_up(const std::string& reason);

  const Setting& setting_;
  Outcome& outcome_;
  const std::string name_;
  const std::string preload_;
  std::vector<std::string> tests_;
  std::map<std::string, Part> results_;
  std::string running_;
  std::string text_;  // the output of the running test
};

// Returns the path of the suite's program: next to this program in a bundle, or in the folder of tests in a
// build.
std::string Suite::program() const {
  const std::string beside = setting_.programs + "/" + name_;
  return std::filesystem::exists(beside) ? beside : setting_.programs + "/../tests/" + name_;
}

bench::Command Suite::command(const std::vector<std::string>& arguments) const {
  bench::Command command;
  command.argv = {program(), "--gtest_color=no"};
  command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
  std::vector<std::string> additions;
  if (!preload_.empty()) additions.push_back("LD_PRELOAD=" + preload_);
  command.environment = cli::environment_with(additions);
  return command;
}

Result<void> Suite::list() {
  CKPT_TRY(output, bench::run_command(command({"--gtest_list_tests"}), nullptr, kTestPatience));
  std::string group;
  std::istringstream lines(output.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ")) {
      tests_.push_back(
          group + line.substr(2, line.find("  #") == std::string::npos ? line.npos : line.find("  #") - 2));
    } else {
      group = line;
    }
  }
  if (tests_.empty()) return Error(ErrorCode::kCorrupt, name_ + " lists no tests: " + output.err);
  return ok();
}

void Suite::handle_line(const std::string& line) {
  if (line.starts_with("[ RUN      ] ")) {
    running_ = after(line, "[ RUN      ] ");
    text_.clear();
    return;
  }
  const auto ended = [&](std::string_view prefix, Status status) {
    if (!line.starts_with(prefix) || after(line, prefix) != running_) return false;
    results_[running_] = {running_, status, status == Status::kPassed ? "" : text_};
    running_.clear();
    return true;
  };
  if (ended("[       OK ] ", Status::kPassed) || ended("[  FAILED  ] ", Status::kFailed) ||
      ended("[  SKIPPED ] ", Status::kImpossible))
    return;
  if (!running_.empty() && text_.size() < kShownText) text_ += (text_.empty() ? "" : " | ") + line;
}

void Suite::give_up(const std::string& reason) {
  if (running_.empty()) return;
  results_[running_] = {running_, Status::kFailed, reason + (text_.empty() ? "" : ": " + text_)};
  running_.clear();
}

Result<bool> Suite::run() {
  std::string filter;
  for (const std::string& test : tests_) {
    if (!results_.contains(test)) filter += (filter.empty() ? "" : ":") + test;
  }
  CKPT_TRY(running, bench::RunningCommand::start(command({"--gtest_filter=" + filter}), nullptr));
  for (;;) {
    const Nanos deadline = std::min(now_ns() + kTestPatience, setting_.deadline);
    auto line = running->read_line(deadline);
    if (!line) {
      give_up("no result after " + std::to_string(kTestPatience / 1'000'000'000) + " s; killed");
      return done();
    }
    if (!*line) break;
    handle_line(**line);
  }
  CKPT_TRY(output, running->finish(now_ns() + kTestPatience));
  give_up("ended the suite (exit status " + std::to_string(output.exit_code) + ") " + output.err);
  return done();
}

void Suite::report() {
  int counts[3] = {};
  for (const std::string& test : tests_) {
    const auto found = results_.find(test);
    const Part part =
        found != results_.end() ? found->second : Part{test, Status::kFailed, "not reached in time"};
    counts[static_cast<int>(part.status)]++;
    outcome_.parts.push_back(part);
  }
  outcome_.figures = {
      {"tests", tests_.size()}, {"passed", counts[0]}, {"skipped", counts[1]}, {"failed", counts[2]}};
}

Result<Outcome> run_suite(const Setting& setting, std::string name, std::string preload) {
  Outcome outcome;
  Suite suite(setting, outcome, std::move(name), std::move(preload));
  CKPT_TRYV(suite.list());
  for (int i = 0; i < kMaxRestarts && !suite.done() && seconds_left(setting) > 2; i++) {
    CKPT_TRY(all, suite.run());
    if (all) break;
  }
  suite.report();
  outcome.sum_up();
  return outcome;
}

}  // namespace

Result<Outcome> check_conformance(const Setting& setting) {
  return run_suite(setting, "conformance_test", "");
}

// Checks that the driver behaves the same through the library that makes unmodified programs movable.
Result<Outcome> check_conformance_shim(const Setting& setting) {
  const std::string shim = setting.programs + "/../lib/libckpt_shim.so";
  if (!std::filesystem::exists(shim)) return Error(ErrorCode::kNotFound, "There is no " + shim);
  return run_suite(setting, "conformance_test", std::filesystem::canonical(shim));
}

Result<Outcome> check_nccl(const Setting& setting) {
  if (setting.software)
    return not_possible("not run on the software GPU: ctest runs it with the software NCCL");
  if (::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL) == nullptr)
    return not_possible("there is no libnccl.so.2 in LD_LIBRARY_PATH");
  return run_suite(setting, "nccl_test", "");
}

}  // namespace ckpt::gpu_check
