// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/obstacles/message_queues.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
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

// Calls `look` with the name and the facts of each queue of the calling thread's IPC namespace. Returns false if
// the queues cannot be read.
bool for_each_queue(const std::function<void(const char* name, const struct stat& facts)>& look) {
  const UniqueFd folder = open_queues();
  const int list = folder ? ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(list >= 0 ? ::fdopendir(list) : nullptr, &::closedir);
  if (!entries) return false;
  while (const dirent* entry = ::readdir(entries.get())) {
    struct stat facts {};
    if (::fstatat(folder.get(), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(facts.st_mode))
      look(entry->d_name, facts);
  }
  return true;
}

std::map<QueueId, std::string> queue_candidates(const NameOwner& owner) {
  std::map<QueueId, std::string> found;
  (void)for_each_queue([&owner, &found](const char* name, const struct stat& facts) {
    if (facts.st_uid == owner.uid && facts.st_ctim.tv_sec >= owner.since_unix_ms / 1000)
      found.emplace(QueueId{facts.st_dev, facts.st_ino}, name);
  });
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

}  // namespace

std::vector<std::string> message_queues_within(pid_t root) {
  std::vector<std::string> found;
  bool is_known = false;
  const bool has_entered = within_ipc_of(root, [&found, &is_known] {
    is_known = for_each_queue(
        [&found](const char* name, const struct stat&) { found.push_back(queue_text(name, "")); });
  });
  is_known = is_known && has_entered;
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
