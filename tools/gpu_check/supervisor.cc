// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/supervisor.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "libckpt/base/fd.h"

namespace ckpt::gpu_check {
namespace {

constexpr Nanos kSecond = 1'000'000'000;
constexpr Nanos kKillPatience = 10 * kSecond;
constexpr std::size_t kShownOutput = 6000;
constexpr std::size_t kShownLog = 1500;
constexpr std::size_t kMaxShown = 40000;
constexpr std::size_t kMaxOutput = std::size_t{64} << 20;
constexpr std::size_t kMaxReport = std::size_t{16} << 20;

sigset_t awaited_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) ::sigaddset(&signals, signal);
  return signals;
}

// Returns the child processes of this process.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& folder : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = folder.path().filename();
    pid_t pid = 0;
    const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failure != std::errc{} || end != name.data() + name.size()) continue;
    std::ifstream file(folder.path() / "stat");
    std::stringstream content;
    content << file.rdbuf();
    const std::string text = content.str();
    const std::size_t bracket = text.rfind(')');  // the process name before it may contain any character
    if (bracket == std::string::npos) continue;
    std::istringstream fields(text.substr(bracket + 1));
    std::string state;
    pid_t parent = 0;
    if (fields >> state >> parent && parent == ::getpid()) found.push_back(pid);
  }
  return found;
}

std::string tail_of(const std::string& path, std::size_t shown) {
  auto text = read_file(path, kMaxOutput);
  if (!text) return text.error().to_string();
  std::string all = *std::move(text);
  return all.size() <= shown ? all : "..." + all.substr(all.size() - shown);
}

std::string output_path(const Setting& setting) {
  return setting.work + "/output";
}

std::string report_path(const Setting& setting) {
  return setting.work + "/report.json";
}

// Returns the item's output, and the ends of the logs of clusters and jobs that it ran in its folder.
std::string collect_output(const Setting& setting) {
  std::string all = tail_of(output_path(setting), kShownOutput);
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(setting.work, error), end; !error && at != end;
       at.increment(error)) {
    if (!at->is_regular_file(error) || at->path().extension() != ".log") continue;
    const std::string text = tail_of(at->path(), kShownLog);
    if (!text.empty()) all += "\n==> " + at->path().string() + "\n" + text;
    if (all.size() > kMaxShown) break;
  }
  return all;
}

// Runs an item, and turns an exception into an error. Items read reports of other programs, and unexpected
// content in such a report is a failure of the item.
Result<Outcome> run_guarded(const Item& item, const Setting& setting) {
  try {
    return item.run(setting);
  } catch (const std::exception& error) {
    return Error(ErrorCode::kCorrupt, error.what());
  }
}

[[noreturn]] void be_item(const Item& item, const Setting& setting) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setsid();
  ::setenv("TMPDIR", setting.work.c_str(), 1);
  const int output = ::open(output_path(setting).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (output < 0) ::_exit(1);
  ::dup2(output, 1);
  ::dup2(output, 2);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  auto result = run_guarded(item, setting);
  Outcome outcome;
  if (result) {
    outcome = *std::move(result);
  } else {
    outcome.status = Status::kFailed;
    outcome.reason = result.error().to_string();
  }
  // Invalid UTF-8 is replaced, because the text from a driver need not be UTF-8.
  const std::string text = to_json(outcome).dump(1, ' ', false, Json::error_handler_t::replace);
  const bool written = static_cast<bool>(write_file_durably(report_path(setting), text));
  ::_exit(written ? 0 : 1);
}

Outcome failed(const std::string& reason) {
  Outcome outcome;
  outcome.status = Status::kFailed;
  outcome.reason = reason;
  return outcome;
}

Outcome read_outcome(const Setting& setting, int status) {
  if (WIFSIGNALED(status))
    return failed(std::string("ended by signal ") + std::to_string(WTERMSIG(status)) + " (" +
                  ::strsignal(WTERMSIG(status)) + ")");
  auto text = read_file(report_path(setting), kMaxReport);
  if (!text) return failed("left no report: " + text.error().to_string());
  try {
    return outcome_of(Json::parse(*text));
  } catch (const Json::exception& error) {
    return failed(std::string("left a damaged report: ") + error.what());
  }
}

}  // namespace

Result<Supervisor> Supervisor::create() {
  const sigset_t signals = awaited_signals();
  if (::sigprocmask(SIG_BLOCK, &signals, nullptr) != 0) return Error::from_errno("Blocking signals");
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    return Error::from_errno("Cannot adopt processes that items leave behind");
  return Supervisor();
}

std::optional<int> Supervisor::wait_for(int pid, Nanos deadline) {
  const sigset_t signals = awaited_signals();
  for (;;) {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == pid) return status;
    const Nanos left = deadline - now_ns();
    if (left <= 0) return std::nullopt;
    const timespec time{static_cast<time_t>(left / kSecond), static_cast<long>(left % kSecond)};
    const int signal = ::sigtimedwait(&signals, nullptr, &time);
    if (signal == SIGINT || signal == SIGTERM) {
      interrupted_ = true;
      return std::nullopt;
    }
  }
}

Ended Supervisor::run(const Item& item, Setting setting, Nanos time) {
  Ended ended;
  const Nanos begin = now_ns();
  setting.deadline = begin + time;
  setting.work += std::string("/") + item.name;
  std::error_code error;
  std::filesystem::create_directory(setting.work, error);  // an error appears when the item writes to the
                                                           // folder
  const pid_t pid = ::fork();
  if (pid == 0) be_item(item, setting);
  if (pid < 0) {
    ended.outcome = failed("cannot start a process for this item: " + std::string(std::strerror(errno)));
    return ended;
  }
  const auto status = wait_for(pid, begin + time);
  if (status) {
    ended.outcome = read_outcome(setting, *status);
  } else {
    ended.outcome = failed(interrupted_ ? "interrupted"
                                        : "not done after " + std::to_string(time / kSecond) + " s; killed");
  }
  ended.seconds = static_cast<double>(now_ns() - begin) / 1e9;
  if (!end_all()) ended.outcome.reason += "; one of its processes did not exit when killed";
  if (ended.outcome.status == Status::kFailed) ended.output = collect_output(setting);
  return ended;
}

bool Supervisor::end_all() {
  const Nanos deadline = now_ns() + kKillPatience;
  const sigset_t signals = awaited_signals();
  for (;;) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const std::vector<pid_t> left = children();
    if (left.empty()) return true;
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    const Nanos rest = deadline - now_ns();
    if (rest <= 0) return false;
    const timespec time{static_cast<time_t>(rest / kSecond), static_cast<long>(rest % kSecond)};
    const int signal = ::sigtimedwait(&signals, nullptr, &time);
    if (signal == SIGINT || signal == SIGTERM) interrupted_ = true;
  }
}

}  // namespace ckpt::gpu_check
