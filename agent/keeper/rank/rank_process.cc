// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/rank/rank_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <set>
#include <vector>

#include "agent/keeper/init/init_words.h"
#include "agent/keeper/init/own_namespaces.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/program_error.h"

namespace ckpt::keeper {
namespace {

constexpr std::size_t kMaxStatusText = 1u << 16;

// Returns the process's id in its innermost PID namespace, which is the last number of "NSpid:    4711    3".
pid_t innermost_id_of(pid_t pid) {
  const auto status = read_file("/proc/" + std::to_string(pid) + "/status", kMaxStatusText);
  const std::string text = status.has_value() ? *status : std::string();
  const std::size_t at = text.find("\nNSpid:");
  if (at == std::string::npos) return pid;
  const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  return static_cast<pid_t>(std::atoi(line.c_str() + line.find_last_of("\t ") + 1));
}

struct Prepared {
  std::vector<std::string> init_words;
  std::vector<char*> argv;
  std::vector<std::string> env_text;
  std::vector<char*> env;
  UniqueFd input;
  UniqueFd log;
  std::string log_path;
};

constexpr int kLogFlags = O_WRONLY | O_APPEND | O_CLOEXEC;

// Puts gpumigrate-init in front of the program. The init starts the program, and writes to `report` if the
// start fails.
void put_init_first(const Config& config, int report, Prepared& prepared) {
  prepared.init_words = {config.init, "--report", std::to_string(report), "--"};
  std::vector<char*> argv;
  for (std::string& word : prepared.init_words) argv.push_back(word.data());
  argv.insert(argv.end(), prepared.argv.begin(), prepared.argv.end());
  prepared.argv = std::move(argv);
}

Result<Prepared> prepare(const Config& config, const std::string& socket_path, const std::string& log_path) {
  Prepared prepared;
  for (const std::string& word : config.argv) prepared.argv.push_back(const_cast<char*>(word.c_str()));
  prepared.argv.push_back(nullptr);
  const std::set<std::string> own = {"CKPT_SOCKET", "CKPT_RANK", "GPUMIGRATE_GPU_MEMORY"};
  std::string preload = config.preload;
  for (const auto& [key, value] : config.env) {
    const bool joins = key == "LD_PRELOAD" && !preload.empty();
    if (joins) preload += ":" + value;
    if (!joins && !own.contains(key)) prepared.env_text.push_back(key + "=" + value);
  }
  if (!preload.empty()) prepared.env_text.push_back("LD_PRELOAD=" + preload);
  if (config.gpu_memory_quota != 0)
    prepared.env_text.push_back("GPUMIGRATE_GPU_MEMORY=" + std::to_string(config.gpu_memory_quota));
  prepared.env_text.push_back("CKPT_SOCKET=" + socket_path);
  prepared.env_text.push_back("CKPT_RANK=0");
  for (std::string& text : prepared.env_text) prepared.env.push_back(text.data());
  prepared.env.push_back(nullptr);
  prepared.input.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!prepared.input) return Error::from_errno("Cannot open /dev/null");
  // The log is a file and not a pipe, because the exit of a reader must not kill or block the program.
  prepared.log_path = log_path;
  prepared.log.reset(::open(log_path.c_str(), kLogFlags | O_CREAT, 0600));
  if (!prepared.log) return Error::from_errno("Cannot open " + log_path);
  return prepared;
}

void reset_signals() {
  for (int number = 1; number < NSIG; ++number) {
    if (number != SIGKILL && number != SIGSTOP) ::signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The steps in the child after the fork. The child reports the failed step to its parent, with errno.
enum class Step : int { kFolder = 1, kDescriptors, kExec, kOrphaned, kNamespaces };
struct Failure {
  Step step;
  int error_number;
};

[[noreturn]] void become_program(const Config& config, Prepared& prepared, int report, pid_t keeper) {
  const auto give_up = [report](Step step) {
    const Failure failure{step, errno};
    (void)!::write(report, &failure, sizeof failure);
    ::_exit(127);
  };
  // CRIU cannot dump a session from outside the process's PID namespace.
  if (config.init.empty()) {
    ::setpgid(0, 0);
  } else {
    ::setsid();
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const pid_t parent = ::getppid();  // the parent's id is 0 in a separate PID namespace
  if (parent != keeper && (parent != 0 || config.init.empty())) give_up(Step::kOrphaned);
  reset_signals();
  int input = prepared.input.get();
  int log = prepared.log.get();
  if (config.namespaces) {
    if (!enter_own_namespaces(config.namespaces->private_tmp)) give_up(Step::kNamespaces);
    input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    log = ::open(prepared.log_path.c_str(), kLogFlags | O_NOFOLLOW);
    if (input < 0 || log < 0) give_up(Step::kNamespaces);
  }
  if (::chdir(config.cwd.c_str()) != 0) give_up(Step::kFolder);
  if (::dup2(input, 0) < 0 || ::dup2(log, 1) < 0 || ::dup2(log, 2) < 0) {
    give_up(Step::kDescriptors);
  }
  if (::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0) give_up(Step::kDescriptors);
  if (!config.init.empty() && ::fcntl(report, F_SETFD, 0) != 0) give_up(Step::kDescriptors);
  ::environ = prepared.env.data();  // execvp searches the program's own PATH
  ::execvp(prepared.argv[0], prepared.argv.data());
  give_up(Step::kExec);
  std::abort();
}

// Checks whether the path lies in a folder of which the job has its own.
bool hides(const Config& config, const std::string& path) {
  if (!config.namespaces) return false;
  std::error_code unknown;
  const std::string resolved = std::filesystem::weakly_canonical(path, unknown).string();
  return unknown || resolved.starts_with("/dev/shm/") ||
         (config.namespaces->private_tmp && resolved.starts_with("/tmp/"));
}

// Returns a refusal if the program could not open one of its files once it has its own folders.
Result<void> check_reached(const Config& config, const std::string& log_path) {
  for (const std::string& path : {log_path, config.init, config.preload}) {
    if (path.empty() || !hides(config, path)) continue;
    return Error(ErrorCode::kRefused, path +
                                          " is in a folder that the job would replace with its own: move the "
                                          "agent's home and programs elsewhere, or start the job without "
                                          "--private-tmp or with --namespaces none");
  }
  return ok();
}

// Returns the error of a failed start. The errors are distinguished as in shells. execvp searches the
// program's own PATH for a name without '/'.
Error cannot_start(const std::string& program, int error_number) {
  const bool missing = error_number == ENOENT || error_number == ENOTDIR;
  // A script whose interpreter is missing exists itself.
  const bool is_there = program.find('/') != std::string::npos && ::access(program.c_str(), F_OK) == 0;
  if (missing && !is_there) return program_error(kProgramNotFound, program + ": not found");
  const std::string reason = missing ? "its interpreter is not found" : std::strerror(error_number);
  return program_error(kProgramNotExecutable, program + ": not executable (" + reason + ")");
}

Error to_error(const Failure& failure, const Config& config) {
  switch (failure.step) {
    case Step::kFolder:
      return Error::from_errno(failure.error_number, "Cannot enter the job's folder " + config.cwd);
    case Step::kNamespaces:
      return Error::from_errno(failure.error_number, "Cannot give the job namespaces of its own");
    case Step::kExec:
      return cannot_start(config.argv.front(), failure.error_number);
    default:
      return Error::from_errno(failure.error_number, "Cannot prepare the job's process");
  }
}

}  // namespace

Result<RankProcess> RankProcess::start(const Config& config, const std::string& socket_path,
                                       const std::string& log_path) {
  CKPT_TRYV(check_reached(config, log_path));
  CKPT_TRY(prepared, prepare(config, socket_path, log_path));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::from_errno("Cannot create a pipe");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  if (!config.init.empty()) put_init_first(config, write_end.get(), prepared);
  const pid_t keeper = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return Error::from_errno("Cannot start a process for the job");
  if (child == 0) become_program(config, prepared, write_end.get(), keeper);
  if (config.init.empty())
    ::setpgid(child, child);  // parent and child both set the group, so it is set when start() returns
  write_end.reset();
  Failure failure{};
  ssize_t got = 0;
  do {
    got = ::read(read_end.get(), &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof failure)) {
    ::waitpid(child, nullptr, 0);
    return to_error(failure, config);
  }
  int error_number = 0;  // errno from the init's report about the program
  if (got == static_cast<ssize_t>(sizeof error_number)) {
    std::memcpy(&error_number, &failure, sizeof error_number);
    ::waitpid(child, nullptr, 0);
    return to_error(Failure{Step::kExec, error_number}, config);
  }
  return RankProcess(child, start_ticks_of(child), !config.init.empty());
}

RankProcess RankProcess::adopt(pid_t pid) {
  return RankProcess(pid, start_ticks_of(pid), is_namespace_init(pid));
}

RankProcess RankProcess::foreign(pid_t pid) {
  RankProcess process = adopt(pid);
  process.is_foreign_ = true;
  return process;
}

std::vector<pid_t> RankProcess::roots() const {
  std::vector<pid_t> roots;
  if (is_there()) roots.push_back(pid_);
  if (has_namespace_ || is_foreign_) return roots;
  for (const pid_t child : children_of(::getpid())) {
    if (child != pid_ && is_orphan(child)) roots.push_back(child);
  }
  return roots;
}

// Checks for a child that the keeper inherited from the rank. The keeper's own children are its helper and
// the processes in its process group.
bool RankProcess::is_orphan(pid_t child) const {
  return child != helper_ && ::getpgid(child) != ::getpgrp();
}

std::vector<pid_t> RankProcess::members() const {
  return tree_of(roots());
}

bool RankProcess::contains(pid_t pid) const {
  const std::vector<pid_t> line = line_of(pid);
  if (line.empty()) return false;
  if (is_there() && std::find(line.begin(), line.end(), pid_) != line.end()) return true;
  if (has_namespace_ || is_foreign_) return false;
  const auto keeper = std::find(line.begin(), line.end(), ::getpid());
  return keeper != line.begin() && keeper != line.end() && is_orphan(*std::prev(keeper));
}

// Stops processes until a list has no new one. Stopped processes do not fork, so each list has fewer new
// processes.
void RankProcess::stop_each(const std::function<void(pid_t)>& before) const {
  std::set<pid_t> reached;
  for (bool has_grown = true; has_grown;) {
    has_grown = false;
    for (const pid_t pid : members()) {
      if (!reached.insert(pid).second) continue;
      has_grown = true;
      before(pid);
      ::kill(pid, SIGSTOP);
    }
  }
}

void RankProcess::stop_all(bool remembers_stopped) {
  stop_each([this, remembers_stopped](pid_t pid) {
    if (remembers_stopped && is_stopped(pid)) stopped_before_[pid] = start_ticks_of(pid);
  });
}

void RankProcess::remember_stopped(const std::vector<pid_t>& in_namespace) {
  if (in_namespace.empty()) return;
  for (const pid_t pid : members()) {
    if (std::ranges::find(in_namespace, innermost_id_of(pid)) != in_namespace.end())
      stopped_before_[pid] = start_ticks_of(pid);
  }
}

void RankProcess::continue_all() {
  const std::vector<pid_t> list = members();
  // Children are continued first, so that no running parent sees its children stopped.
  for (auto pid = list.rbegin(); pid != list.rend(); ++pid) {
    const auto before = stopped_before_.find(*pid);
    if (before == stopped_before_.end() || before->second != start_ticks_of(*pid)) ::kill(*pid, SIGCONT);
  }
  stopped_before_.clear();
}

void RankProcess::terminate_all() const {
  for (const pid_t pid : members()) {
    if (pid == pid_ && has_namespace_) {
      ::sigqueue(pid, SIGTERM, sigval{.sival_int = kToTheWholeJob});
    } else {
      ::kill(pid, SIGTERM);
    }
  }
}

Result<void> RankProcess::kill_all() const {
  // When a namespace's init exits, the kernel kills all processes in the namespace.
  if (!has_namespace_ || is_foreign_) {
    stop_each([](pid_t) {});
    for (const pid_t pid : members()) ::kill(pid, SIGKILL);
  }
  if (is_foreign_ || !is_there() || ::kill(pid_, SIGKILL) == 0) return ok();
  return Error::from_errno("Cannot kill the program, process " + std::to_string(pid_));
}

Result<void> enter_new_pid_namespace() {
  if (::unshare(CLONE_NEWPID) == 0) return ok();
  if (errno != EPERM) return Error::from_errno("Cannot create a PID namespace");
  return Error(ErrorCode::kNotSupported, ErrorDomain::kErrno, errno,
               "Creating a PID namespace for the job requires root (CAP_SYS_ADMIN)");
}

}  // namespace ckpt::keeper
