// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/obstacles/message_queues.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "agent/host_process/processes/own_namespaces.h"
#include "agent/host_process/processes/process_tree.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

using QueueId = std::pair<dev_t, ino_t>;

// Opens the folder of all queues of this IPC namespace. The file system is not mounted anywhere.
UniqueFd open_queues() {
  const UniqueFd fs(static_cast<int>(::syscall(SYS_fsopen, "mqueue", FSOPEN_CLOEXEC)));
  if (!fs || ::syscall(SYS_fsconfig, fs.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) return {};
  return UniqueFd(static_cast<int>(::syscall(SYS_fsmount, fs.get(), FSMOUNT_CLOEXEC, 0)));
}

std::map<QueueId, std::string> queue_candidates(const NameOwner& owner) {
  std::map<QueueId, std::string> found;
  const UniqueFd folder = open_queues();
  const UniqueFd list(folder ? ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1);
  const int own = list ? ::dup(list.get()) : -1;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(own >= 0 ? ::fdopendir(own) : nullptr, &::closedir);
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr) {
    struct stat facts {};
    if (::fstatat(folder.get(), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(facts.st_mode))
      continue;
    if (facts.st_uid == owner.uid && facts.st_ctim.tv_sec >= owner.since_unix_ms / 1000)
      found.emplace(QueueId{facts.st_dev, facts.st_ino}, entry->d_name);
  }
  return found;
}

void remove_open_ones(std::map<QueueId, std::string>& queues) {
  std::set<std::string> names;
  for (const auto& [id, name] : queues) names.insert(name);
  std::error_code gone;
  for (const auto& process : std::filesystem::directory_iterator("/proc", gone)) {
    if (process.path().filename().string().find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code ended;
    std::filesystem::directory_iterator file(process.path() / "fd", ended);
    for (; !ended && file != std::filesystem::directory_iterator(); file.increment(ended)) {
      std::error_code closed;
      const std::string link = std::filesystem::read_symlink(file->path(), closed).string();
      struct stat facts {};
      if (names.contains(link.substr(link.rfind('/') + 1)) && ::stat(file->path().c_str(), &facts) == 0)
        queues.erase({facts.st_dev, facts.st_ino});
    }
  }
}

std::string queue_text(const std::string& name, const char* note) {
  return "POSIX message queue /" + name + " of the job" + note +
         " would be lost in a move: let the program remove it before the move (mq_unlink)";
}

// Returns a text for each queue of the calling thread's IPC namespace.
std::vector<std::string> read_queues() {
  std::vector<std::string> found;
  const UniqueFd folder = open_queues();
  const UniqueFd list(folder ? ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1);
  const int copy = list ? ::dup(list.get()) : -1;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(copy >= 0 ? ::fdopendir(copy) : nullptr, &::closedir);
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") found.push_back(queue_text(name, ""));
  }
  return found;
}

}  // namespace

std::vector<std::string> message_queues_within(pid_t root) {
  std::vector<std::string> found;
  const bool is_known = within_ipc_of(root, [&found] { found = read_queues(); });
  if (!is_known && !has_ended(root))
    found.emplace_back("the job's POSIX message queues cannot be read: move the job again");
  return found;
}

std::vector<std::string> message_queues_of(const NameOwner& owner) {
  std::vector<std::string> found;
  if (!owner.is_alone || owner.since_unix_ms == kNeverMs) return found;
  std::map<QueueId, std::string> queues = queue_candidates(owner);
  if (!queues.empty()) remove_open_ones(queues);
  for (const auto& [id, name] : queues)
    found.push_back(queue_text(name, " (created after the job's start, and not open in any process)"));
  return found;
}

}  // namespace ckpt::agent::host
