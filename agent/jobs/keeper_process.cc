// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/keeper_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <sstream>
#include <vector>

#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

constexpr std::size_t kMaxProcEntry = 64 << 10;
constexpr std::size_t kMaxPidFile = 256;

struct KeeperId {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;
};

enum class PidFile { kAbsent, kUnreadable, kUnwritten, kNames };

std::string entry_of(pid_t pid, const char* name) {
  return "/proc/" + std::to_string(pid) + name;
}

// Reads a keeper's file. A keeper writes the file in one operation, after it has locked the file.
PidFile read_pid_file(const std::string& path, KeeperId& id) {
  if (::access(path.c_str(), F_OK) != 0) return errno == ENOENT ? PidFile::kAbsent : PidFile::kUnreadable;
  const Result<std::string> text = read_file(path, kMaxPidFile);
  if (!text) return PidFile::kUnreadable;
  std::istringstream fields(*text);
  const bool whole = static_cast<bool>(fields >> id.pid >> id.start_ticks);
  return whole && id.pid > 1 && id.start_ticks != 0 ? PidFile::kNames : PidFile::kUnwritten;
}

bool is_locked(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return errno != ENOENT;
  return ::flock(file.get(), LOCK_SH | LOCK_NB) != 0;
}

// Checks whether the process runs, by state and start time in /proc/PID/stat. A process that waits to be
// reaped does not run.
bool runs(const KeeperId& id) {
  constexpr int kStartTicks = 22;
  const Result<std::string> stat = read_file(entry_of(id.pid, "/stat"), kMaxProcEntry);
  const std::size_t name_end = stat ? stat->rfind(')') : std::string::npos;
  if (name_end == std::string::npos) return ::kill(id.pid, 0) == 0 || errno != ESRCH;
  std::istringstream fields(stat->substr(name_end + 1));
  std::string state;
  std::string field;
  fields >> state;
  for (int number = 4; number < kStartTicks; ++number) fields >> field;
  std::uint64_t ticks = 0;
  fields >> ticks;
  return ticks == id.start_ticks && state != "Z" && state != "X";
}

bool has_ended(pid_t pid) {
  const Result<std::string> stat = read_file(entry_of(pid, "/stat"), kMaxProcEntry);
  if (!stat) return true;
  const std::size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat->size()) return false;
  const char state = (*stat)[name_end + 2];
  return state == 'Z' || state == 'X';
}

// Finds processes that were started to keep this folder. No other check finds a keeper that has not written
// its file yet.
std::vector<pid_t> started_for(const std::string& folder) {
  std::vector<pid_t> found;
  const std::string arguments = std::string("--dir") + '\0' + folder + '\0';
  std::error_code error;
  for (auto at = std::filesystem::directory_iterator("/proc", error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    pid_t pid = 0;
    const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failure != std::errc() || end != name.data() + name.size()) continue;
    const Result<std::string> line = read_file(entry_of(pid, "/cmdline"), kMaxProcEntry);
    if (!line) continue;
    const std::size_t program_end = line->find('\0');
    if (program_end == std::string::npos || line->substr(program_end + 1) != arguments) continue;
    if (!has_ended(pid)) found.push_back(pid);
  }
  return found;
}

std::optional<uid_t> user_of(pid_t pid) {
  const Result<std::string> status = read_file(entry_of(pid, "/status"), kMaxProcEntry);
  const std::size_t at = status ? status->find("\nUid:") : std::string::npos;
  if (at == std::string::npos) return std::nullopt;
  std::istringstream fields(status->substr(at + 5));
  uid_t real = 0;
  uid_t effective = 0;
  if (!(fields >> real >> effective) || real != effective) return std::nullopt;
  return real;
}

// Kills a process if it passes the checks. The descriptor is opened first, so all later checks concern the
// process that gets the signal.
template <class Check>
void kill_if(pid_t pid, const std::string& folder, bool may_be_own, Check is_it) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  struct stat owner {};
  if (!process || ::stat(folder.c_str(), &owner) != 0) return;
  const std::optional<uid_t> user = user_of(pid);
  const bool its_user = user && (*user == owner.st_uid || (may_be_own && *user == ::geteuid()));
  if (!its_user || !is_it()) return;
  (void)::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
}

}  // namespace

bool keeper_may_live(const std::string& folder) {
  const std::string path = folder + "/keeper.pid";
  KeeperId id;
  switch (read_pid_file(path, id)) {
    case PidFile::kUnreadable:
      return true;
    case PidFile::kAbsent:
    case PidFile::kUnwritten:
      return !started_for(folder).empty();
    case PidFile::kNames:
      break;
  }
  return is_locked(path) || runs(id);
}

void kill_keeper(const std::string& folder) {
  KeeperId id;
  const bool named = read_pid_file(folder + "/keeper.pid", id) == PidFile::kNames;
  if (named) return kill_if(id.pid, folder, false, [&] { return runs(id); });
  // Root's processes count, because a keeper runs as root until it becomes the job's user.
  for (const pid_t pid : started_for(folder)) kill_if(pid, folder, true, [&] { return !has_ended(pid); });
}

}  // namespace ckpt::agent
