// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/handover_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "agent/host_process/criu_image/open_files.h"
#include "agent/host_process/files/build_id.h"
#include "agent/host_process/files/proc_files.h"
#include "agent/host_process/named_memory/shared_folder.h"
#include "agent/host_process/processes/process_tree.h"
#include "agent/host_process/processes/task_settings.h"
#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/codec.h"

namespace ckpt::agent {
namespace {

constexpr std::size_t kMaxHandoverBytes = 64u << 20;
constexpr std::uint64_t kMaxReadInPause = std::uint64_t{32} << 20;
constexpr std::chrono::milliseconds kMaxReadTimeInPause{200};
constexpr std::uintmax_t kEmptyImage = 8;  // size of a CRIU image without a record
const std::string kHandoverFile = "/files-at-switch.img";
const std::string kLocksImage = "/filelocks.img";

bool travels(const std::string& path, const host::FileRules& rules) {
  return path == rules.own_log || rules.own.contains(path) || host::names_process(path) ||
         path.starts_with(host::kSharedFolder) || path.starts_with("/proc/self/") ||
         host::is_cache_file(path, rules.cache_folders);
}

// Adds the files that were written. After a write, the content at the time of the check proves nothing.
void add_changed(const host::FileList& listed, const host::FileRules& rules, host::FileSystems& systems,
                 host::FileList& now) {
  for (const host::FileFact& fact : listed.files) {
    struct stat facts {};
    const bool has_identity = fact.identity.inode != 0;  // without an identity, only the length is compared
    if (!host::has_content(fact.use) || !has_identity || fact.kernels_own || travels(fact.path, rules) ||
        ::lstat(fact.path.c_str(), &facts) != 0)
      continue;
    host::FileFact changed = fact;
    changed.identity = systems.identity_of(fact.path, facts);
    changed.bytes = static_cast<std::uint64_t>(facts.st_size);
    if (changed.bytes == fact.bytes && host::is_unchanged(fact.identity, changed.identity)) continue;
    changed.digest.clear();
    now.files.push_back(std::move(changed));
  }
}

// Adds the files that were opened. A file that was opened since the check may also be mapped. Then it would
// be memory of the program.
void add_opened(const std::vector<host::OpenFile>& open, const host::FileRules& rules,
                std::set<std::string>& known, host::FileSystems& systems, host::FileList& now) {
  for (const host::OpenFile& file : open) {
    struct stat facts {};
    if (travels(file.path, rules) || !known.insert(file.path).second ||
        ::lstat(file.path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode))
      continue;
    host::FileFact& fact = now.files.emplace_back();
    fact.path = file.path;
    fact.bytes = static_cast<std::uint64_t>(facts.st_size);
    fact.identity = systems.identity_of(file.path, facts);
    fact.kernels_own = host::is_kernels_own(file.path);
    fact.is_mount = host::is_mount(file.path);
    fact.shares_memory = file.is_written;
    if (file.is_written) {
      fact.use = host::FileUse::kWritten;
    } else if (fact.build_id = host::build_id_of(file.path); !fact.build_id.empty()) {
      fact.use = host::FileUse::kProgram;
    }
  }
}

// Adds all locks that the stopped processes hold, if CRIU has saved any.
void add_locks(const std::vector<pid_t>& tree, const std::string& images, const host::OwnNamespaces& own,
               host::FileList& now) {
  std::error_code missing;
  const std::uintmax_t bytes = std::filesystem::file_size(images + kLocksImage, missing);
  if (missing || bytes <= kEmptyImage) return;
  host::TreeLocks locks;
  for (const pid_t pid : tree) {
    for (const auto& item : std::filesystem::directory_iterator(host::proc_path(pid, "/fd"), missing)) {
      const std::string path = std::filesystem::read_symlink(item.path(), missing).string();
      if (path.starts_with('/') && !path.ends_with(" (deleted)") && !own.contains(path))
        locks.note(pid, std::atoi(item.path().filename().c_str()), path);
    }
  }
  now.locks = locks.locks();
}

Result<void> check_names(const std::vector<host::OpenFile>& open, bool has_own_proc) {
  for (const host::OpenFile& file : open) {
    if (has_own_proc ? !host::why_not_in_own_proc(file.path).empty() : host::names_process(file.path))
      return Error(ErrorCode::kRefused,
                   "Since the check, the program has opened " + file.path +
                       ", which belongs to another process or thread: move the job again");
  }
  return ok();
}

Result<host::FileList> read_handover(const std::string& images) {
  if (::access((images + kHandoverFile).c_str(), F_OK) != 0) return host::FileList();
  CKPT_TRY(text, read_file(images + kHandoverFile, kMaxHandoverBytes));
  return wire::decode<host::FileList>(std::as_bytes(std::span(text)));
}

}  // namespace

Result<void> save_handover(pid_t root, const std::string& images, const host::FileList& listed,
                           const host::FileRules& rules) {
  CKPT_TRY(processes, host::processes_of(root));
  const std::set<pid_t> tree(processes.begin(), processes.end());
  // With its own /proc, the image names a process by the number that it keeps.
  const bool has_own_proc = rules.own.present;
  CKPT_TRY(open, host::settle_open_files(images, [&tree, has_own_proc](const std::string& path) {
             return has_own_proc ? path : host::by_self(path, tree);
           }));
  CKPT_TRYV(check_names(open, has_own_proc));
  host::FileList now;
  host::FileSystems systems;
  std::set<std::string> known;
  for (const host::FileFact& fact : listed.files) known.insert(fact.path);
  add_opened(open, rules, known, systems, now);
  host::ContentReader reader(listed.seed, kMaxReadInPause, kMaxReadTimeInPause);
  host::describe_content(now.files, reader, false);
  add_changed(listed, rules, systems, now);
  add_locks(processes, images, rules.own, now);
  CKPT_TRYV(host::save_settings(root, images));
  if (now.files.empty() && now.locks.empty()) return ok();
  now.kernel = host::running_kernel();
  now.seed = listed.seed;
  const std::vector<std::byte> bytes = wire::encode(now);
  return write_file_durably(images + kHandoverFile,
                            std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

Result<void> prepare_handover(const std::string& images, const host::CheckedFiles& checked,
                              const std::vector<std::string>& cache_folders, host::Compared when) {
  CKPT_TRY(now, read_handover(images));
  std::erase_if(now.files,
                [&checked](const host::FileFact& fact) { return checked.same.contains(fact.path); });
  CKPT_TRY(later, host::check_files(now, cache_folders, when));
  later.same.insert(checked.same.begin(), checked.same.end());
  return host::remove_lengths(images, later.same);
}

}  // namespace ckpt::agent
