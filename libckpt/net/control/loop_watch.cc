// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/loop_watch.h"

#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "libckpt/base/fd.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::control {
namespace {

using std::chrono::milliseconds;

constexpr int kMaxFrames = 48;
constexpr milliseconds kStackWithin{1000};
constexpr std::size_t kMaxProcEntry = 4096;
constexpr int kExitStalled = 70;
constexpr unsigned kSecondsToLog = 5;

// The stack that the signal handler records in the loop's thread. The handler writes `g_depth` last.
std::array<void*, kMaxFrames> g_frames;
std::atomic<int> g_depth{0};

int stack_signal() {
  return SIGRTMIN;
}

void take_stack(int) {
  const int saved = errno;
  g_depth.store(::backtrace(g_frames.data(), kMaxFrames), std::memory_order_release);
  errno = saved;
}

Result<void> install_handler() {
  // The first call of backtrace() loads a library, which no signal handler may do.
  std::array<void*, 1> one{};
  (void)::backtrace(one.data(), 1);
  struct sigaction action {};
  action.sa_handler = take_stack;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (::sigaction(stack_signal(), &action, nullptr) != 0)
    return Error::from_errno("Cannot install the handler of the signal that requests a stack trace");
  return ok();
}

std::string entry_of(pid_t thread, const char* name) {
  const auto read = read_file("/proc/self/task/" + std::to_string(thread) + "/" + name, kMaxProcEntry);
  std::string text = read ? *read : std::string();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "unknown" : text;
}

std::string stack_of(pid_t thread) {
  g_depth.store(0, std::memory_order_relaxed);
  if (::syscall(SYS_tgkill, ::getpid(), thread, stack_signal()) != 0) return "  unknown\n";
  const auto until = std::chrono::steady_clock::now() + kStackWithin;
  int depth = 0;
  // Polls, because a signal handler cannot wake a thread. The loop is stalled anyway.
  while ((depth = g_depth.load(std::memory_order_acquire)) == 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(10));
  if (depth == 0) return "  unknown: the thread is in the kernel and takes no signals\n";
  char** names = ::backtrace_symbols(g_frames.data(), depth);
  if (names == nullptr) return "  unknown: no memory\n";
  std::string text;
  for (int i = 0; i < depth; ++i) text += "  " + std::string(names[i]) + "\n";
  std::free(names);
  return text;
}

std::string place_of(pid_t thread) {
  // Reads the files first, because the signal changes what the thread does.
  const std::string kernel = entry_of(thread, "wchan");
  const std::string call = entry_of(thread, "syscall");
  std::string text = "kernel function " + kernel + ", system call " + call + ", stack:\n" + stack_of(thread);
  text.pop_back();
  return text;
}

}  // namespace

StallDetector::Verdict StallDetector::check(Clock::time_point now, std::uint64_t beats) {
  const auto passed = std::chrono::duration_cast<milliseconds>(now - checked_);
  checked_ = now;
  if (std::exchange(beats_, beats) != beats) {
    stood_for_ = milliseconds(0);
    reported_ = false;
    return Verdict::kRuns;
  }
  stood_for_ += std::min(passed, 2 * limits_.check_interval);
  if (stood_for_ >= limits_.end_after) return Verdict::kTooLong;
  if (stood_for_ < limits_.report_after) return Verdict::kRuns;
  return std::exchange(reported_, true) ? Verdict::kReported : Verdict::kStalled;
}

LoopWatch::LoopWatch(asio::io_context& io, Settings settings)
    : settings_(std::move(settings)), beats_(std::make_shared<Beats>()) {
  spawn(io.get_executor(), "beats of the event loop", beat(beats_, settings_.limits.check_interval));
}

Result<std::unique_ptr<LoopWatch>> LoopWatch::create(asio::io_context& io, Settings settings) {
  CKPT_TRYV(install_handler());
  std::unique_ptr<LoopWatch> watch(new LoopWatch(io, std::move(settings)));
  try {
    watch->thread_ = std::thread([watch = watch.get()] { watch->watch(); });
  } catch (const std::system_error&) {
    return Error(ErrorCode::kOutOfMemory, "No thread can be started to watch the event loop");
  }
  return watch;
}

LoopWatch::~LoopWatch() {
  beats_->ended = true;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Task<> LoopWatch::beat(std::shared_ptr<Beats> beats, milliseconds pause) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  beats->thread = ::gettid();
  while (!beats->ended) {
    beats->count.fetch_add(1, std::memory_order_relaxed);
    timer.expires_after(pause);
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

void LoopWatch::watch() {
  std::unique_lock lock(mutex_);
  StallDetector detector(settings_.limits, StallDetector::Clock::now());
  const auto ending = [this] { return ending_; };
  while (!ends_.wait_for(lock, settings_.limits.check_interval, ending)) {
    const pid_t thread = beats_->thread;
    const auto verdict =
        detector.check(StallDetector::Clock::now(), beats_->count.load(std::memory_order_relaxed));
    if (thread == 0) continue;
    if (verdict == StallDetector::Verdict::kStalled)
      settings_.stalled(detector.stood_for(), place_of(thread));
    if (verdict == StallDetector::Verdict::kTooLong) settings_.too_long(detector.stood_for());
  }
}

LoopWatch::Settings settings_of_daemon() {
  LoopWatch::Settings settings;
  // The loop's thread may be stalled in its log and then owns the log's lock. The alarm terminates the
  // process in that case.
  const auto limit = std::chrono::ceil<std::chrono::seconds>(settings.limits.end_after).count();
  settings.stalled = [limit](milliseconds stood_for, const std::string& where) {
    ::alarm(static_cast<unsigned>(limit));
    spdlog::error("the event loop is blocked: for_ms {} {}", stood_for.count(), where);
    ::alarm(0);
  };
  settings.too_long = [](milliseconds stood_for) {
    ::alarm(kSecondsToLog);
    spdlog::critical("the event loop is blocked: for_ms {}; the process exits so that it can be restarted",
                     stood_for.count());
    spdlog::shutdown();
    ::_exit(kExitStalled);
  };
  return settings;
}

}  // namespace ckpt::control
