// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu.h"

#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>
#include <sstream>

#include "agent/host_process/criu_answers.h"
#include "agent/host_process/processes/process_tree.h"
#include "agent/host_process/processes/time_limit.h"
#include "agent/host_process/run_program.h"
#include "agent/host_process/sockets/sockets.h"
#include "agent/host_process/trusted_program.h"
#include "agent/io/process.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::chrono::seconds kMaxTimeout{3600};  // the longest timeout that a keeper accepts
constexpr int kOldest = 4;  // the oldest supported major version; CRIU 3.17 does not work on current kernels
constexpr std::size_t kMaxLogBytes = std::size_t{64} << 20;
constexpr Milliseconds kShort{30000};
constexpr Milliseconds kFirstPause{10};  // first pause after a dump failed because of a concurrent dump; the
                                         // pause doubles
constexpr Milliseconds kLastPause{640};
// This folder is CRIU's folder of plugins, because it cannot contain any plugin. CRIU needs such a folder,
// but the context helper performs the driver's checkpoint.
constexpr const char* kNoPlugins = "/proc/sys/kernel";
// FI_NO_BREAKPOINTS makes CRIU trace the processes by their system calls, as on machines without breakpoints.
// The kernel takes 12 ms to set the first breakpoint, and that time would be downtime.
constexpr const char* kNoBreakpoints = "CRIU_FAULT=130";
// CRIU finds the node's mounts in the job's mount namespace by itself, also those that get the node's later
// mounts (m) or share them (s).
constexpr const char* kNodesMounts = "mnt[]:ms";
// Sets gzip to its fastest level. CRIU packs the contents of the job's own mounts with tar and gzip, in the
// pause.
constexpr const char* kFastestGzip = "GZIP=-1";

std::string text_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

std::string cache_folder() {
  if (std::string cache = text_of("XDG_CACHE_HOME"); !cache.empty()) return cache;
  if (const std::string home = text_of("HOME"); !home.empty()) return home + "/.cache";
  const passwd* user = ::getpwuid(::geteuid());
  return std::string(user ? user->pw_dir : "/root") + "/.cache";
}

std::vector<std::string> candidates(const std::string& configured) {
  if (!configured.empty()) return {configured};
  if (const std::string wanted = text_of("GPUMIGRATE_CRIU"); !wanted.empty()) return {wanted};
  std::vector<std::string> list;
  const std::string path = text_of("PATH");
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    if (end > at) list.push_back(path.substr(at, end - at) + "/criu");
    at = end + 1;
  }
  if (auto folder = program_folder()) list.push_back(*folder + "/../lib/criu/bin/criu");
  list.push_back(cache_folder() + "/gpumigrate/criu/bin/criu");
  list.emplace_back("/usr/local/lib/gpumigrate/criu/bin/criu");
  return list;
}

// Builds a command line. g++ 12 accepts no initializer list inside a coroutine, so coroutines call this
// function instead.
template <class... Words>
std::vector<std::string> command(Words... words) {
  return {std::string(words)...};
}

// Runs a command and returns its output. The error is kIo with the exit status if the command failed. Moves
// that begin at the same time run the command concurrently, so each run has its own output file.
Task<Result<std::string>> output_of(std::vector<std::string> argv, std::string work, std::string name) {
  static std::atomic<std::uint64_t> asked{0};
  ProcessSpec spec;
  spec.argv = std::move(argv);
  spec.output_path = work + "/" + name + "." + std::to_string(asked.fetch_add(1));
  spec.own_session = true;
  ::unlink(spec.output_path.c_str());
  const std::string path = spec.output_path;
  CKPT_CO_TRY(status, co_await run_program(std::move(spec), kShort));
  CKPT_CO_TRY(text, read_file(path, kMaxLogBytes));
  ::unlink(path.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) co_return text;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  co_return Error(ErrorCode::kIo,
                  text.empty() ? describe_wait_status(status) : text.substr(text.rfind('\n') + 1));
}

// Returns the version in CRIU's output: "Version: 4.1.1" -> "4.1.1".
std::optional<std::string> version_in(const std::string& text) {
  const std::string word = "Version: ";
  const std::size_t at = text.find(word);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t begin = at + word.size();
  return text.substr(begin, text.find_first_not_of("0123456789.", begin) - begin);
}

std::vector<std::string> common_options(const std::string& program, const char* verb,
                                        const std::string& images, const std::string& work,
                                        const std::string& log) {
  // A configuration file in /etc or in a home folder must not change CRIU's behavior here.
  std::vector<std::string> words = {
      program, verb,  "--no-default-config", "--images-dir", images,    "--work-dir", work, "--log-file",
      log,     "-v2", "--file-locks",        "--libdir",     kNoPlugins};
  return words;
}

// Adds the options that save connections. No process outside the stopped tree sends on these connections, so
// no connection needs a packet filter during the dump.
void keep_connections(std::vector<std::string>& words) {
  words.insert(words.end(), {"--tcp-established", "--network-lock", "skip"});
}

std::string log_of(const std::string& work, const char* name) {
  return work + "/" + name;
}

std::string explained(std::string error) {
  if (error.find("Connected TCP socket") == std::string::npos) return error;
  return "the program has opened a TCP connection since the check, so move the job again (" + error + ")";
}

constexpr const char* kDumpLog = "criu-dump.log";
constexpr const char* kRestoreLog = "criu-restore.log";
constexpr const char* kPidFile = "restored.pid";

std::vector<std::string> dump_command(const std::string& program, pid_t root, const DumpOptions& options) {
  std::vector<std::string> argv = common_options(program, "dump", options.images, options.work, kDumpLog);
  // Without --skip-in-flight, CRIU fails on a connection that the program has opened since the check. If the
  // program closed the connection, it would be lost.
  if (options.connections)
    keep_connections(argv);
  else if (options.ends_connections)
    argv.emplace_back("--tcp-close");  // CRIU leaves the connections alone
  argv.insert(argv.end(), {"--leave-stopped", "--skip-in-flight", "--ghost-limit",
                           std::to_string(kMaxUnlinkedBytes), "--tree", std::to_string(root)});
  if (options.makes_links) argv.emplace_back("--link-remap");
  if (options.own_namespaces) argv.insert(argv.end(), {"--external", kNodesMounts});
  argv.insert(argv.end(), options.more.begin(), options.more.end());
  return argv;
}

// Checks whether process `pid` is a CRIU process that dumps the tree of `root` (dump_command()).
bool dumps(pid_t pid, pid_t root) {
  const Result<std::string> command_line = read_file("/proc/" + std::to_string(pid) + "/cmdline", 1 << 16);
  if (!command_line.has_value()) return false;
  const std::string nul(1, '\0');
  const std::string& text = *command_line;
  return text.find(nul + "dump" + nul) != std::string::npos &&
         text.find(nul + "--tree" + nul + std::to_string(root) + nul) != std::string::npos;
}

// Returns how long the process has run, or 0 if the process has exited.
Milliseconds age_of(pid_t pid) {
  const Result<std::string> stat = read_file("/proc/" + std::to_string(pid) + "/stat", 1 << 16);
  if (!stat.has_value()) return Milliseconds{0};
  // The fields after the name are read, because the name may contain any characters. The state is the third
  // field, and the start time (ticks since boot) is the 22nd.
  std::istringstream fields(stat->substr(stat->rfind(')') + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  timespec since_boot{};
  ::clock_gettime(CLOCK_BOOTTIME, &since_boot);
  const long per_second = ::sysconf(_SC_CLK_TCK);
  const long long started_ms = std::atoll(field.c_str()) * 1000 / per_second;
  return Milliseconds{since_boot.tv_sec * 1000LL + since_boot.tv_nsec / 1'000'000 - started_ms};
}

Result<void> wait_for_end(pid_t pid, Milliseconds timeout, Milliseconds limit) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return ok();  // the CRIU process exited in the meantime
  const Milliseconds left = std::max(limit - age_of(pid), Milliseconds{0});
  pollfd ended{process.get(), POLLIN, 0};
  if (::poll(&ended, 1, static_cast<int>(std::min(timeout, left).count())) > 0) return ok();
  if (left > timeout)
    return Error(ErrorCode::kTimedOut, "CRIU (process " + std::to_string(pid) + ") is still dumping the job");
  spdlog::warn("CRIU killed: process {} has been dumping a job for {} ms", pid, limit.count());
  ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
  ::poll(&ended, 1, static_cast<int>(timeout.count()));
  return ok();
}

std::uint64_t bytes_in(const std::string& folder) {
  std::uint64_t bytes = 0;
  std::error_code ignored;
  for (const auto& item : std::filesystem::directory_iterator(folder, ignored)) {
    const std::uintmax_t size = item.file_size(ignored);
    if (!ignored) bytes += size;
  }
  return bytes;
}

// Checks whether another dump interfered with this one. CRIU creates a folder with a fixed name for the
// "/proc" of a PID namespace other than the node's.
bool met_another_dump(const std::string& log_path) {
  const Result<std::string> log = read_file(log_path, kMaxLogBytes);
  return log.has_value() &&
         log->find("Can't create a directory (" + std::to_string(-EEXIST) + ")") != std::string::npos;
}

// Removes the images of a dump that has failed. A link that place_pages() created is kept.
void remove_images(const std::string& folder) {
  std::error_code ignored;
  for (const auto& item : std::filesystem::directory_iterator(folder, ignored)) {
    if (item.is_regular_file(ignored) && !item.is_symlink(ignored)) ::unlink(item.path().c_str());
  }
}

}  // namespace

Milliseconds least_criu_time(Milliseconds usual) {
  const long wanted = std::atol(text_of("GPUMIGRATE_CRIU_TIMEOUT").c_str());
  return wanted > 0 && wanted <= kMaxTimeout.count() ? std::chrono::seconds(wanted) : usual;
}

Milliseconds criu_timeout(std::uint64_t bytes) {
  return std::min<Milliseconds>(time_limit(bytes, least_criu_time(kStuckAfter)), kMaxTimeout);
}

Task<Result<Criu>> Criu::find(std::string configured, std::string work) {
  std::string tried;
  for (const std::string& candidate : candidates(configured)) {
    if (::access(candidate.c_str(), X_OK) != 0) continue;
    if (const auto trusted = check_trusted_program(candidate); !trusted) {
      tried += (tried.empty() ? " " : ", ") + candidate + " is not trusted: " + trusted.error().message();
      continue;
    }
    const auto text = co_await output_of(command(candidate, "--version"), work, "criu-version");
    const auto version = text.has_value() ? version_in(*text) : std::nullopt;
    if (version && std::atoi(version->c_str()) >= kOldest) {
      auto answers = co_await criu_kdat_cache_dir(candidate, *version, work);
      co_return Criu(candidate, *version, std::move(answers));
    }
    tried += (tried.empty() ? " " : ", ") + candidate + " is " +
             (version ? "version " + *version : "not a CRIU program, or cannot be started");
  }
  const std::string where = configured.empty() ? "" : " at " + configured;
  co_return Error(ErrorCode::kNotSupported, "There is no CRIU of version 4 or newer" + where +
                                                (tried.empty() ? "" : " (" + tried.substr(1) + ")") +
                                                ": install one with tools/criu install");
}

Task<Result<void>> Criu::check(std::string work) const {
  if (::geteuid() != 0)
    co_return Error(ErrorCode::kNotSupported, "CRIU needs root, and this agent does not run as root");
  const auto said = co_await output_of(command(program_, "check"), work, "criu-check");
  if (said.has_value()) co_return ok();
  co_return Error(ErrorCode::kNotSupported, program_ + " check failed").caused_by(said.error());
}

Task<CriuFacts> Criu::probe(std::string configured, std::string work) {
  CriuFacts facts;
  const auto criu = co_await find(std::move(configured), work);
  if (!criu.has_value()) {
    facts.problem = criu.error().to_string();
    co_return facts;
  }
  facts.program = criu->program();
  facts.version = criu->version();
  const auto checked = co_await criu->check(work);
  facts.works = checked.has_value();
  if (!facts.works) {
    facts.problem = checked.error().to_string();
    co_return facts;
  }
  facts.restores_lazily = co_await criu->restores_lazily(work);
  co_return facts;
}

Task<Result<DumpFacts>> Criu::dump(pid_t root, DumpOptions options) const {
  for (Milliseconds pause = kFirstPause;; pause *= 2) {
    auto dumped = co_await dump_once(root, options);
    if (dumped || pause > kLastPause || !met_another_dump(dump_log(options))) co_return dumped;
    if (options.may_repeat && !options.may_repeat()) co_return dumped;
    remove_images(options.images);
    asio::steady_timer timer(co_await asio::this_coro::executor, pause);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

Task<Result<DumpFacts>> Criu::dump_once(pid_t root, const DumpOptions& options) const {
  ProcessSpec spec;
  spec.argv = dump_command(program_, root, options);
  for (std::string& word : options_for(answers_)) spec.argv.push_back(std::move(word));
  spec.environment = environment_for(answers_);
  spec.environment.emplace_back(kNoBreakpoints);
  if (options.own_namespaces) spec.environment.emplace_back(kFastestGzip);
  if (!options.preload.empty()) spec.environment.push_back("LD_PRELOAD=" + options.preload);
  spec.output_path = options.work + "/criu.out";
  spec.own_session = true;  // a signal to the agent's process group must not interrupt the restore
  ::unlink(dump_log(options).c_str());
  const Nanos began = now_ns();
  CKPT_CO_TRY(status, co_await run_program(std::move(spec), options.timeout));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    const std::string reason =
        WIFSIGNALED(status) ? "it terminated with " + describe_wait_status(status) + "; " : "";
    co_return Error(ErrorCode::kRefused, "CRIU cannot dump process " + std::to_string(root) + ": " + reason +
                                             explained(first_error(dump_log(options))));
  }
  DumpFacts facts;
  facts.bytes = bytes_in(options.images);
  facts.took_ns = now_ns() - began;
  co_return facts;
}

Task<bool> Criu::restores_lazily(std::string work) const {
  auto said = co_await output_of(command(program_, "check", "--feature", "uffd-noncoop"), work, "criu-check");
  co_return said.has_value();
}

std::vector<std::string> Criu::restore_command(const RestoreOptions& options) const {
  std::vector<std::string> argv;
  if (!answers_.empty()) {
    argv = environment_for(answers_);
    argv.insert(argv.begin(), "/usr/bin/env");
  }
  for (std::string& word : common_options(program_, "restore", options.images, options.work, kRestoreLog))
    argv.push_back(std::move(word));
  if (options.connections)
    keep_connections(argv);
  else
    argv.emplace_back("--tcp-close");  // images of earlier releases may contain closed connections
  for (std::string& word : options_for(answers_)) argv.push_back(std::move(word));
  for (const char* word : {"--restore-detached", "--restore-sibling"}) argv.emplace_back(word);
  if (options.stopped) argv.emplace_back("--leave-stopped");
  if (options.lazy) argv.emplace_back("--lazy-pages");
  if (options.own_namespaces) argv.insert(argv.end(), {"--external", "mnt[]", "--root", "/"});
  argv.insert(argv.end(), {"--pidfile", pid_file(options)});
  argv.insert(argv.end(), options.more.begin(), options.more.end());
  if (!options.old_log.empty()) {
    const std::size_t name = options.old_log.find_first_not_of('/');
    argv.insert(argv.end(), {"--inherit-fd",
                             "fd[" + std::to_string(options.log_fd) + "]:" + options.old_log.substr(name)});
  }
  return argv;
}

std::string Criu::why_no_internet() const {
  return host::why_no_internet(version_, kernel_tells_credentials_of_all());
}

std::string why_no_internet(const std::string& version, bool kernel_tells_all) {
  constexpr int kMajor = 4;
  constexpr int kMinor = 2;  // minor version; 4.2 is the first version that does not request the socket
                             // option
  const int major = std::atoi(version.c_str());
  const std::size_t dot = version.find('.');
  const int minor = dot == std::string::npos ? 0 : std::atoi(version.c_str() + dot + 1);
  if (kernel_tells_all || major > kMajor || (major == kMajor && minor >= kMinor)) return "";
  return "CRIU " + version +
         " cannot save on this kernel (Linux 6.16 or newer): install CRIU 4.2 or newer on this "
         "node, or let the program close it";
}

std::string Criu::pid_file(const RestoreOptions& options) {
  return log_of(options.work, kPidFile);
}
std::string Criu::restore_log(const RestoreOptions& options) {
  return log_of(options.work, kRestoreLog);
}
std::string Criu::dump_log(const DumpOptions& options) {
  return log_of(options.work, kDumpLog);
}

std::string Criu::first_error(const std::string& log_path) {
  if (auto found = find_error(log_path)) return *std::move(found);
  return ::access(log_path.c_str(), F_OK) == 0 ? "see " + log_path : "it left no log at " + log_path;
}

std::optional<std::string> Criu::find_error(const std::string& log_path) {
  const Result<std::string> log = read_file(log_path, kMaxLogBytes);
  if (!log.has_value()) return std::nullopt;
  const std::string& text = *log;
  const auto line_at = [&text](std::size_t at) { return text.substr(at, text.find('\n', at) - at); };
  // The first error is the cause, except for the complaint about RLIMIT_NOFILE, which a private prefix always
  // receives.
  std::size_t at = text.find("Error (");
  while (at != std::string::npos && line_at(at).find("RLIMIT_NOFILE") != std::string::npos)
    at = text.find("Error (", at + 1);
  if (at == std::string::npos) return std::nullopt;
  std::string line = line_at(at);
  if (met_another_dump(log_path))
    line +=
        "; another dump is running in this folder, or an earlier one left its folder proc.crtools behind: "
        "remove that folder if no dump is running";
  const std::size_t message = line.find("): ");
  return (message == std::string::npos ? line : line.substr(message + 3)) + " (" + log_path + ")";
}

Result<void> wait_for_dump(pid_t root, Milliseconds timeout) {
  const Result<std::uint64_t> bytes = dump_bytes(root);
  const Milliseconds limit = criu_timeout(bytes.has_value() ? *bytes : 0);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || !dumps(pid, root)) continue;
    CKPT_TRYV(wait_for_end(pid, timeout, limit));
  }
  return ok();
}

}  // namespace ckpt::agent::host
