// SPDX-License-Identifier: Apache-2.0
// gpumigrate-keeper --dir JOBDIR: starts the job that JOBDIR/keeper.json describes and supervises it. The
// program returns with exit code 0 when the job's program runs and keeper.sock listens. Otherwise it prints
// one line on standard error and returns 1, or 64 for wrong usage. The keeper itself continues in its own
// session, and outlives the process that has started it.
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "agent/keeper/init/holder.h"
#include "agent/keeper/init/restored.h"
#include "agent/keeper/keeper.h"
#include "agent/keeper/rank/rank_process.h"
#include "libckpt/base/fault.h"
#include "libckpt/base/program_error.h"

namespace ckpt::keeper {
namespace {

constexpr int kExitUsage = 64;
constexpr std::size_t kMaxConfigBytes = 4u << 20;

// Changes to the job's user. Root gives the folder to the job's user and becomes that user. Any other user
// keeps its own identity.
Result<void> become_user(const Config& config, const std::string& folder) {
  if (::geteuid() != 0 || !config.uid || *config.uid == 0) return ok();
  const gid_t group = config.gid.value_or(*config.uid);
  if (::chown(folder.c_str(), *config.uid, group) != 0)
    return Error::from_errno("Cannot give " + folder + " to the job's user");
  const passwd* entry = ::getpwuid(*config.uid);
  const int groups = entry != nullptr ? ::initgroups(entry->pw_name, group) : ::setgroups(0, nullptr);
  if (groups != 0 || ::setgid(group) != 0 || ::setuid(*config.uid) != 0) {
    return Error::from_errno("Cannot become user " + std::to_string(*config.uid));
  }
  return ok();
}

// Writes JOBDIR/keeper.pid, "PID START_TICKS". The file is locked as long as the keeper runs.
Result<UniqueFd> write_pid_file(const std::string& folder) {
  const std::string path = folder + "/keeper.pid";
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return Error::from_errno("Cannot open " + path);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error(ErrorCode::kRefused, "Another keeper uses " + folder + " already");
  }
  const std::string text =
      std::to_string(::getpid()) + " " + std::to_string(start_ticks_of(::getpid())) + "\n";
  if (::ftruncate(fd.get(), 0) != 0) return Error::from_errno("Cannot empty " + path);
  CKPT_TRYV(write_all(fd.get(), std::as_bytes(std::span(text.data(), text.size()))));
  return fd;
}

// Redirects standard input and output to /dev/null, and errors to JOBDIR/keeper.log.
void leave_terminal(const std::string& folder) {
  const UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueFd log(
      ::open((folder + "/keeper.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  ::dup2(nothing.get(), 0);
  ::dup2(nothing.get(), 1);
  ::dup2(log ? log.get() : nothing.get(), 2);
}

void report_failure(const std::string& folder, const Config& config, const Error& error) {
  nlohmann::json report{
      {"job", config.job}, {"incarnation", config.incarnation}, {"role", role_name(config.role)},
      {"state", "failed"}, {"error", error.to_string()},        {"ended_at_ms", wall_clock_ms()}};
  if (const int status = program_status_of(error); status != 0) report["program_status"] = status;
  const std::string text = report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (Result<void> written = write_file_durably(folder + "/status.json", text); !written.has_value()) {
    std::fprintf(stderr, "%s\n", written.error().to_string().c_str());
  }
}

// Restores the job's program from its image as this process's child. The program is an orphan of the
// restoring command, so it becomes a child of the keeper.
Result<std::optional<Keeper::Restored>> restore(const Config& config, const std::string& folder) {
  if (!config.restore) return std::optional<Keeper::Restored>();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string path = folder + "/out.log";
  const UniqueFd log(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!log) return Error::from_errno("Cannot open " + path);
  RestoreSpec spec;
  spec.command = config.restore->command;
  spec.pid_file = config.restore->pid_file;
  spec.log = log.get();
  spec.leaves_mounts = config.namespaces.has_value();
  spec.timeout = config.restore->timeout;
  spec.lazy_pages = config.restore->lazy_pages;
  spec.lazy_pages_pid_file = config.restore->lazy_pages_pid_file;
  NamespaceHolder holder;
  if (config.adopted) {
    CKPT_TRY(held, hold_pid_namespace(config.init));
    holder = std::move(held);
    spec.pid_namespace = holder.pid_namespace.get();
  }
  CKPT_TRY(restored, start_restored(spec));
  return std::optional(
      Keeper::Restored{restored.pid, std::move(holder.alive), std::move(restored.lazy_pages)});
}

// The pid file stays locked as long as the result exists.
struct Prepared {
  UniqueFd pid_file;
  Result<std::unique_ptr<Keeper>> keeper;
};

Result<Prepared> become_keeper(const Config& config, const std::string& folder,
                               std::optional<Keeper::Restored> restored) {
  CKPT_TRYV(become_user(config, folder));
  CKPT_TRY(pid_file, write_pid_file(folder));
  // The name leaves out the id's tag, because a test names its crash points before the tag is drawn.
  set_fault_role("keeper." + config.job.substr(0, config.job.find('-', 2)) + "." + role_name(config.role));
  return Prepared{std::move(pid_file), Keeper::create(config, folder, std::move(restored))};
}

// Does the work that requires root before the keeper becomes the job's user.
Result<Prepared> prepare(const Config& config, const std::string& folder) {
  CKPT_TRY(restored, restore(config, folder));
  if (!restored && !config.adopted && !config.init.empty()) {
    CKPT_TRYV(enter_new_pid_namespace());
  }
  const pid_t restored_pid = restored ? restored->pid : 0;
  Result<Prepared> prepared = become_keeper(config, folder, std::move(restored));
  // A restored program without a keeper would have no lease.
  const bool works = prepared.has_value() && prepared->keeper.has_value();
  if (!works && restored_pid != 0) (void)RankProcess::adopt(restored_pid).kill_all().has_value();
  return prepared;
}

Result<void> keep(Config config, const std::string& folder, UniqueFd started) {
  Result<Prepared> prepared = prepare(config, folder);
  if (!prepared.has_value()) {
    if (config.restore) report_failure(folder, config, prepared.error());
    return std::move(prepared).error();
  }
  Result<std::unique_ptr<Keeper>>& keeper = prepared->keeper;
  if (!keeper.has_value()) {
    report_failure(folder, config, keeper.error());
    return std::move(keeper).error();
  }
  CKPT_TRYV(write_all(started.get(), std::as_bytes(std::span("k", 1))));
  started.reset();
  leave_terminal(folder);
  return (*keeper)->run();
}

// Waits until the keeper reports that it works. The keeper itself reports a failure on standard error.
int wait_for_start(pid_t child, const UniqueFd& started) {
  char word = 0;
  while (::read(started.get(), &word, 1) < 0 && errno == EINTR) {
  }
  if (word == 'k') return EXIT_SUCCESS;
  ::waitpid(child, nullptr, 0);
  return EXIT_FAILURE;
}

// Returns the path of a file next to this program. The path is determined before the user changes, because
// /proc does not show it afterwards.
std::string beside_this_program(const std::string& name) {
  std::error_code unknown;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  return unknown ? name : (self.parent_path() / name).string();
}

int run_in_background(const Config& config, const std::string& folder) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return EXIT_FAILURE;
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) {
    std::fprintf(stderr, "gpumigrate-keeper: cannot fork: %s\n", std::strerror(errno));
    return EXIT_FAILURE;
  }
  if (child > 0) {
    write_end.reset();
    return wait_for_start(child, read_end);
  }
  read_end.reset();
  ::setsid();
  ::signal(SIGHUP, SIG_IGN);
  const Result<void> served = keep(config, folder, std::move(write_end));
  if (served.has_value()) return EXIT_SUCCESS;
  std::fprintf(stderr, "gpumigrate-keeper: %s\n", served.error().to_string().c_str());
  return EXIT_FAILURE;
}

int main_with(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::printf("gpumigrate-keeper %s\n", GPUMIGRATE_VERSION);
    return EXIT_SUCCESS;
  }
  if (argc != 3 || std::strcmp(argv[1], "--dir") != 0) {
    std::fprintf(stderr, "usage: gpumigrate-keeper --dir JOBDIR\n");
    return kExitUsage;
  }
  ::close_range(3, ~0U, 0);
  char resolved[4096];
  if (::realpath(argv[2], resolved) == nullptr) {
    std::fprintf(stderr, "gpumigrate-keeper: %s: %s\n", argv[2], std::strerror(errno));
    return EXIT_FAILURE;
  }
  const std::string folder = resolved;
  const Result<std::string> text = read_file(folder + "/keeper.json", kMaxConfigBytes);
  Result<Config> config = text.has_value() ? parse_config(*text) : text.error();
  if (!config.has_value()) {
    std::fprintf(stderr, "gpumigrate-keeper: %s\n", config.error().to_string().c_str());
    return EXIT_FAILURE;
  }
  if (config->context_program.empty()) config->context_program = beside_this_program("gpumigrate-context");
  return run_in_background(*config, folder);
}

}  // namespace
}  // namespace ckpt::keeper

int main(int argc, char** argv) {
  return ckpt::keeper::main_with(argc, argv);
}
