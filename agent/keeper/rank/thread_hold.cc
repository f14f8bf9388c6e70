// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/rank/thread_hold.h"

#include <signal.h>
#include <sys/ptrace.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include "libckpt/base/fd.h"

namespace ckpt::keeper {
namespace {

bool is_in(const std::vector<pid_t>& list, pid_t pid) {
  return std::find(list.begin(), list.end(), pid) != list.end();
}

constexpr Nanos kStopLimitNs = 1'000 * kNanosPerMs;
constexpr std::chrono::microseconds kStopLook{100};
constexpr std::size_t kMaxStat = 4096;

// Checks whether the thread is in a trace stop or has exited.
bool stands(pid_t thread) {
  const auto stat = read_file("/proc/" + std::to_string(thread) + "/stat", kMaxStat);
  if (!stat) return true;
  const std::string& text = *stat;
  const std::size_t name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= text.size() ||
         std::string_view("tZX").find(text[name_end + 2]) != std::string_view::npos;
}

}  // namespace

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads;
  std::error_code gone;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone))
    threads.push_back(static_cast<pid_t>(std::atoi(entry.path().filename().c_str())));
  return threads;
}

Result<void> ThreadHold::acquire(pid_t pid, const std::vector<pid_t>& workers, Nanos limit_ns) {
  if (is_held()) return ok();
  const std::vector<pid_t> threads = threads_of(pid);
  for (const pid_t worker : workers) {
    if (!is_in(threads, worker))
      return Error(ErrorCode::kNotFound,
                   "Process " + std::to_string(pid) + " has no thread " + std::to_string(worker));
  }
  for (const pid_t thread : threads) {
    if (is_in(workers, thread)) continue;
    if (::ptrace(PTRACE_SEIZE, thread, nullptr, PTRACE_O_EXITKILL) == 0) {
      threads_.push_back(thread);
    } else if (errno != ESRCH) {
      const Error error = Error::from_errno("Cannot stop thread " + std::to_string(thread));
      detach_all();
      return error;
    }
  }
  if (auto stopped = stop_all(); !stopped) {
    detach_all();
    return stopped;
  }
  held_pid_ = pid;
  is_ending_ = false;
  limit_.set(now_ns() + limit_ns);
  return ok();
}

// Stops all held threads. A thread of a stopped process may not have stopped yet, and an early SIGCONT would
// let it run.
Result<void> ThreadHold::stop_all() {
  for (const pid_t thread : threads_) ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
  const Nanos limit = now_ns() + kStopLimitNs;
  for (const pid_t thread : threads_) {
    while (!stands(thread)) {
      if (now_ns() > limit)
        return Error(ErrorCode::kTimedOut, "Thread " + std::to_string(thread) + " does not stop");
      std::this_thread::sleep_for(kStopLook);
    }
  }
  return ok();
}

void ThreadHold::go_on() {
  if (!is_held()) return process_.continue_all();
  if (is_ending_) return release();
  ::kill(held_pid_, SIGCONT);
}

void ThreadHold::end(bool may_run) {
  if (!is_held()) return;
  limit_.clear();
  is_ending_ = true;
  if (may_run) release();
}

void ThreadHold::on_exited() {
  limit_.clear();
  threads_.clear();
  held_pid_ = 0;
}

void ThreadHold::release() {
  process_.continue_all();
  detach_all();
  held_pid_ = 0;
}

// Detaches all held threads. A thread that cannot be detached has exited.
void ThreadHold::detach_all() {
  for (const pid_t thread : threads_) ::ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
  threads_.clear();
}

}  // namespace ckpt::keeper
