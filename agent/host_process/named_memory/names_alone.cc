// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/named_memory/names_alone.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string_view>

#include "agent/host_process/criu_image/link_paths.h"
#include "agent/host_process/named_memory/shared_folder.h"
#include "agent/host_process/processes/process_tree.h"

namespace ckpt::agent::host {
namespace {

// The extended attribute for the mark. Only root may set the attribute, and no program sees it.
constexpr const char* kMarkAttribute = "trusted.gpumigrate.maker";
constexpr std::size_t kMaxMark = 256;
constexpr std::string_view kOwnPrefix = "gpumigrate";  // prefix of images and of checkpoint stores
constexpr std::int64_t kStartTickMs = 10;  // precision of a start time: one tick of the kernel's clock, in ms

struct NameEntry {
  std::string name;
  std::uint64_t inode = 0;
  bool is_file = false;
  bool is_marked = false;  // true if the file's mark names the job
};

std::string mark_at(const std::string& path) {
  std::array<char, kMaxMark> text{};
  const ssize_t bytes = ::lgetxattr(path.c_str(), kMarkAttribute, text.data(), text.size());
  return bytes > 0 ? std::string(text.data(), static_cast<std::size_t>(bytes)) : std::string();
}

std::string pid_namespace_of(pid_t pid) {
  std::error_code gone;
  return std::filesystem::read_symlink(proc_path(pid, "/ns/pid"), gone).string();
}

std::int64_t born_ms(const struct statx& facts) {
  const auto& time = (facts.stx_mask & STATX_BTIME) != 0 ? facts.stx_btime : facts.stx_ctime;
  return static_cast<std::int64_t>(time.tv_sec) * 1000 + time.tv_nsec / 1'000'000;
}

class Marks {
 public:
  explicit Marks(const NameOwner& owner)
      : owner_(owner),
        own_namespace_(has_own_pid_namespace(owner.root)),
        space_(pid_namespace_of(owner.root)),
        job_(mark_of_job(owner.job)) {}
  [[nodiscard]] bool are_of_job(const std::string& mark) const {
    if (!owner_.job.empty() && mark == job_) return true;
    const std::size_t space_end = mark.find(' ');
    if (space_.empty() || space_end == std::string::npos || mark.substr(0, space_end) != space_) return false;
    return own_namespace_ || owner_.tree.contains(std::atoi(mark.c_str() + space_end + 1));
  }
  // Checks whether a file without a mark may belong to the job.
  [[nodiscard]] bool may_lack() const { return own_namespace_; }

 private:
  const NameOwner& owner_;
  const bool own_namespace_;
  const std::string space_;
  const std::string job_;
};

std::vector<NameEntry> name_entries_of(const NameOwner& owner, const std::set<std::uint64_t>& held) {
  std::vector<NameEntry> found;
  const Marks marks(owner);
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(kSharedFolder), &::closedir);
  while (const dirent* item = folder ? ::readdir(folder.get()) : nullptr) {
    const std::string_view name = item->d_name;
    if (name == "." || name == ".." || name.starts_with(kOwnPrefix) || is_link_name(name)) continue;
    const std::string path = kSharedFolder + std::string(name);
    struct statx facts {};
    if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &facts) != 0)
      continue;
    const bool counts = S_ISREG(facts.stx_mode) || S_ISDIR(facts.stx_mode) || S_ISLNK(facts.stx_mode);
    if (!counts || facts.stx_uid != owner.uid || held.contains(facts.stx_ino)) continue;
    if (owner.since_unix_ms == kNeverMs || born_ms(facts) + kStartTickMs < owner.since_unix_ms) continue;
    const std::string mark = mark_at(path);
    if (mark.empty() ? !marks.may_lack() : !marks.are_of_job(mark)) continue;
    NameEntry& entry = found.emplace_back();
    entry.name = name;
    entry.inode = facts.stx_ino;
    entry.is_file = S_ISREG(facts.stx_mode);
    entry.is_marked = !mark.empty();
  }
  return found;
}

std::string entry_text(const NameEntry& entry) {
  const std::string path = kSharedFolder + entry.name;
  const std::string remedy = ": let the program remove this file before the move";
  if (!entry.is_file) return path + " of the job is not a file, and would be lost" + remedy;
  return path + ", which no process has open, may belong to this job or to another job of its user" + remedy +
         ", or keep the file open";
}

}  // namespace

NamesAlone names_alone_of(const NameOwner& owner, const std::set<std::uint64_t>& held) {
  NamesAlone found;
  const std::vector<NameEntry> entries = name_entries_of(owner, held);
  std::set<std::uint64_t> inodes;
  for (const NameEntry& entry : entries) inodes.insert(entry.inode);
  const auto holders = holders_of(inodes, {});
  for (const NameEntry& entry : entries) {
    if (holders.contains(entry.inode)) continue;
    if (entry.is_file && (entry.is_marked || owner.is_alone))
      found.files.insert(entry.inode);
    else if (entry.is_marked || owner.is_alone || entry.is_file)
      found.problems.push_back(entry_text(entry));
  }
  return found;
}

std::string mark_of_maker(pid_t pid) {
  const std::string space = pid_namespace_of(pid);
  return space.empty() ? space : space + " " + std::to_string(pid);
}

std::string mark_of_job(const std::string& job) {
  return "job " + job;
}

void set_mark(const std::string& path, const std::string& mark, bool replaces) {
  if (mark.empty() || mark.size() > kMaxMark) return;
  (void)::lsetxattr(path.c_str(), kMarkAttribute, mark.data(), mark.size(), replaces ? 0 : XATTR_CREATE);
}

}  // namespace ckpt::agent::host
