// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/early_pages/userfaultfd_of.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "agent/host_process/processes/descriptors.h"

namespace ckpt::agent::host {

#ifdef __x86_64__
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::microseconds kFirstLook{20};  // first pause between checks; the pause doubles
constexpr std::chrono::microseconds kLastLook{2000};
constexpr long kUserModeOnly = 1;  // UFFD_USER_MODE_ONLY, which every user may request
constexpr std::uint64_t kAllSignals = ~std::uint64_t{0};
constexpr std::size_t kMaxVdso = std::size_t{64} << 10;
constexpr int kSyscallStop = SIGTRAP | 0x80;  // stop signal that ptrace reports for a system call stop
                                              // (PTRACE_O_TRACESYSGOOD)
constexpr unsigned long kUser64 = 0x33;       // the code segment of 64-bit programs

Error ended(pid_t pid) {
  return {ErrorCode::kNotFound, "Process " + std::to_string(pid) + " has ended"};
}

// Returns the address of a system call instruction in the vdso, which the kernel maps into every process.
Result<std::uint64_t> find_syscall_instruction(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  std::ifstream maps(folder + "/maps");
  unsigned long begin = 0;
  unsigned long end = 0;
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with("[vdso]")) continue;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2) break;
  }
  if (end <= begin || end - begin > kMaxVdso)
    return Error(ErrorCode::kNotSupported, "Process " + std::to_string(pid) + " has no vdso");
  std::string code(end - begin, '\0');
  iovec here{code.data(), code.size()};
  iovec there{reinterpret_cast<void*>(begin), code.size()};
  if (::process_vm_readv(pid, &here, 1, &there, 1, 0) != static_cast<ssize_t>(code.size()))
    return Error::from_errno("Cannot read the vdso of process " + std::to_string(pid));
  const std::size_t at = code.find("\x0f\x05");
  if (at == std::string::npos)
    return Error(ErrorCode::kNotSupported,
                 "The vdso of process " + std::to_string(pid) + " has no system call instruction");
  return begin + at;
}

// A thread that stays stopped as long as this object exists.
class StoppedThread {
 public:
  StoppedThread(pid_t tid, const TraceOptions& options) : tid_(tid), options_(options) {}
  StoppedThread(const StoppedThread&) = delete;
  StoppedThread& operator=(const StoppedThread&) = delete;
  ~StoppedThread() {
    if (!seized_) return;
    // The registers must be restored first. If this tracer exits before that, the kernel kills the process.
    if (changed_) (void)come_back(Patience::kForEver);
    (void)::ptrace(PTRACE_DETACH, tid_, nullptr, nullptr);
  }

  Result<void> stop();
  // Runs a system call in the thread. Returns the result of the call, which may be a negated errno.
  Result<long> call(std::uint64_t instruction, long number, long argument);
  // Returns the thread to the point where it was stopped. Call this function after the last use of call().
  Result<void> return_to_work() { return come_back(Patience::kLimited); }
  // Checks whether the thread's registers differ from its own.
  [[nodiscard]] bool is_changed() const { return changed_; }

 private:
  enum class Patience : std::uint8_t { kLimited, kForEver };
  Result<int> wait_for_stop(Patience patience = Patience::kLimited);
  Result<void> run(__ptrace_request how, int signal);
  Result<void> run_to_syscall_stop();
  Result<void> come_back(Patience patience);
  [[nodiscard]] Result<void> set_registers(const user_regs_struct& registers) const;
  Result<void> change();
  [[nodiscard]] Error failed(const char* what) const {
    return Error::from_errno(std::string(what) + " process " + std::to_string(tid_));
  }

  const pid_t tid_;
  const TraceOptions& options_;
  bool seized_ = false;
  bool stands_ = false;  // true while the thread is in a stop that waitpid() has reported to this tracer
  bool changed_ = false;
  user_regs_struct saved_{};
  std::uint64_t mask_ = 0;
};

// Waits for a stop by polling, because the kernel has no call that waits for a stop with a deadline.
Result<int> StoppedThread::wait_for_stop(Patience patience) {
  const auto time_limit = changed_ ? options_.limit_inside : options_.limit;
  const auto deadline = steady_clock::now() + time_limit;
  for (auto pause = kFirstLook;; pause = std::min(pause * 2, kLastLook)) {
    int status = 0;
    const pid_t got = ::waitpid(tid_, &status, __WALL | WNOHANG);
    if (got < 0 && errno != EINTR) return failed("Cannot wait for");
    if (got == tid_) {
      stands_ = WIFSTOPPED(status);
      if (!stands_) return ended(tid_);
      return status;
    }
    if (patience == Patience::kLimited && steady_clock::now() >= deadline)
      return Error(ErrorCode::kTimedOut, "Process " + std::to_string(tid_) + " did not stop within " +
                                             std::to_string(time_limit.count()) + " ms");
    std::this_thread::sleep_for(pause);
  }
}

Result<void> StoppedThread::run(__ptrace_request how, int signal) {
  if (::ptrace(how, tid_, nullptr, static_cast<long>(signal)) != 0) return failed("Cannot continue");
  stands_ = false;
  return ok();
}

Result<void> StoppedThread::stop() {
  constexpr long kOptions = PTRACE_O_TRACESYSGOOD;
  if (::ptrace(PTRACE_SEIZE, tid_, nullptr, kOptions) != 0) return failed("Cannot trace");
  seized_ = true;
  if (::ptrace(PTRACE_INTERRUPT, tid_, nullptr, nullptr) != 0) return failed("Cannot stop");
  for (;;) {
    CKPT_TRY(status, wait_for_stop());
    const int signal = WSTOPSIG(status);
    if (status >> 16 == PTRACE_EVENT_STOP) {
      if (signal == SIGTRAP) return ok();
      return Error(ErrorCode::kRefused, "Process " + std::to_string(tid_) + " is stopped by a signal");
    }
    // The thread stopped to receive a signal. It gets that signal, and stops again before it does anything
    // else.
    CKPT_TRYV(run(PTRACE_CONT, signal));
  }
}

Result<void> StoppedThread::set_registers(const user_regs_struct& registers) const {
  iovec set{const_cast<user_regs_struct*>(&registers), sizeof registers};
  if (::ptrace(PTRACE_SETREGSET, tid_, NT_PRSTATUS, &set) != 0) return failed("Cannot set the registers of");
  return ok();
}

// Prepares the thread for injected calls: saves its registers, suspends its seccomp filter and blocks its
// signals. From this point the thread must not continue with its current registers.
Result<void> StoppedThread::change() {
  if (changed_) return ok();
  iovec set{&saved_, sizeof saved_};
  if (::ptrace(PTRACE_GETREGSET, tid_, NT_PRSTATUS, &set) != 0) return failed("Cannot read the registers of");
  if (set.iov_len != sizeof saved_ || saved_.cs != kUser64)
    return Error(ErrorCode::kNotSupported, "Process " + std::to_string(tid_) + " is not a 64-bit program");
  if (::ptrace(PTRACE_GETSIGMASK, tid_, sizeof mask_, &mask_) != 0)
    return failed("Cannot read the signals of");
  // The seccomp filter is suspended, because it might kill the process for the injected call.
  constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_SUSPEND_SECCOMP;
  if (::ptrace(PTRACE_SETOPTIONS, tid_, nullptr, kOptions) != 0) return failed("Cannot trace");
  std::uint64_t all = kAllSignals;
  changed_ = true;
  if (::ptrace(PTRACE_SETSIGMASK, tid_, sizeof all, &all) != 0) return failed("Cannot block the signals of");
  if (options_.inside) options_.inside();
  return ok();
}

bool is_event(int status) {
  return status >> 16 == PTRACE_EVENT_STOP;
}

// Runs the thread until its next system call stop. SIGSTOP cannot be blocked, so the thread receives it. The
// kernel stops the thread after the detach, unless a SIGCONT has arrived in the meantime.
Result<void> StoppedThread::run_to_syscall_stop() {
  for (int signal = 0;;) {
    CKPT_TRYV(run(PTRACE_SYSCALL, signal));
    CKPT_TRY(status, wait_for_stop());
    if (WSTOPSIG(status) == kSyscallStop) return ok();
    signal = is_event(status) ? 0 : WSTOPSIG(status);
    if (signal != 0 && signal != SIGSTOP)
      return Error(ErrorCode::kInternal, "Process " + std::to_string(tid_) + " stopped with signal " +
                                             std::to_string(WSTOPSIG(status)) + " inside a system call");
  }
}

Result<long> StoppedThread::call(std::uint64_t instruction, long number, long argument) {
  CKPT_TRYV(change());
  user_regs_struct registers = saved_;
  registers.rip = instruction;
  registers.rax = static_cast<unsigned long>(number);
  registers.rdi = static_cast<unsigned long>(argument);
  registers.orig_rax = ~0UL;  // prevents the kernel from restarting the interrupted call
  CKPT_TRYV(set_registers(registers));
  CKPT_TRYV(run_to_syscall_stop());
  CKPT_TRYV(run_to_syscall_stop());
  iovec set{&registers, sizeof registers};
  if (::ptrace(PTRACE_GETREGSET, tid_, NT_PRSTATUS, &set) != 0) return failed("Cannot read the registers of");
  return static_cast<long>(registers.rax);
}

// Brings the thread to a stop of the same kind as the first stop. From there the kernel restarts an
// interrupted call, or lets it fail because of a signal, with the thread's own registers.
Result<void> StoppedThread::come_back(Patience patience) {
  if (!changed_) return ok();
  // The requested stop is repeated, because any other stop cancels it.
  for (int signal = 0;;) {
    if (::ptrace(PTRACE_INTERRUPT, tid_, nullptr, nullptr) != 0) return failed("Cannot stop");
    if (stands_) {
      CKPT_TRYV(run(PTRACE_CONT, signal));
    }
    CKPT_TRY(status, wait_for_stop(patience));
    if (is_event(status)) break;
    signal = WSTOPSIG(status) == SIGSTOP ? SIGSTOP : 0;
  }
  CKPT_TRYV(set_registers(saved_));
  if (::ptrace(PTRACE_SETSIGMASK, tid_, sizeof mask_, &mask_) != 0)
    return failed("Cannot restore the signals of");
  if (::ptrace(PTRACE_SETOPTIONS, tid_, nullptr, nullptr) != 0) return failed("Cannot trace");
  changed_ = false;
  return ok();
}

Result<UniqueFd> take_descriptor(pid_t pid, long number) {
  UniqueFd descriptor = borrow_descriptor(pid, static_cast<int>(number));
  if (!descriptor) return Error::from_errno("Cannot copy a descriptor of process " + std::to_string(pid));
  return descriptor;
}

Result<UniqueFd> make_and_take(pid_t pid, StoppedThread& thread) {
  CKPT_TRY(instruction, find_syscall_instruction(pid));
  CKPT_TRYV(thread.stop());
  CKPT_TRY(made, thread.call(instruction, SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | kUserModeOnly));
  if (made < 0) {
    CKPT_TRYV(thread.return_to_work());
    return Error::from_errno(static_cast<int>(-made),
                             "Cannot create a userfaultfd in process " + std::to_string(pid));
  }
  auto descriptor = take_descriptor(pid, made);
  CKPT_TRYV(thread.call(instruction, SYS_close, made));
  CKPT_TRYV(thread.return_to_work());
  return descriptor;
}

}  // namespace

// Uses a separate tracer thread, because a thread that could not be stopped in time is detached only when its
// tracer exits. The tracer continues alone while the traced thread's registers are not its own.
Result<UniqueFd> userfaultfd_of(pid_t pid, const TraceOptions& options) {
  struct Answer {
    Result<UniqueFd> made;
    bool goes_on;
  };
  std::promise<Answer> promise;
  std::future<Answer> answer = promise.get_future();
  auto trace = [pid, options, promise = std::move(promise)]() mutable {
    std::optional<StoppedThread> thread(std::in_place, pid, options);
    auto made = make_and_take(pid, *thread);
    const bool goes_on = thread->is_changed();
    if (!goes_on) thread.reset();
    promise.set_value({std::move(made), goes_on});
  };
  try {
    std::thread tracer(std::move(trace));
    Answer got = answer.get();
    if (got.goes_on)
      tracer.detach();
    else
      tracer.join();
    return std::move(got.made);
  } catch (const std::system_error&) {
    return Error(ErrorCode::kOutOfMemory, "Cannot start a thread to trace process " + std::to_string(pid));
  }
}

#else

Result<UniqueFd> userfaultfd_of(pid_t, const TraceOptions&) {
  return Error(ErrorCode::kNotSupported, "Memory writes of a process can be tracked on x86-64 only");
}

#endif

}  // namespace ckpt::agent::host
