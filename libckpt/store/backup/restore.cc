// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/backup/restore.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <vector>

namespace ckpt::backup {
namespace {

namespace fs = std::filesystem;

// The files next to a store that was not closed properly.
constexpr std::array<std::string_view, 2> kStoreCompanions = {"state.db-wal", "state.db-shm"};
// The order in which parts get their final names, as indices in kParts.
constexpr std::array<std::size_t, kParts.size()> kOrder = {1, 0, 2, 3, 4, 5, 6, 7, 8, 9};
static_assert(kParts[kOrder[0]] == kJournal && kParts[kOrder[1]] == kStore);

std::string path_of(const std::string& folder, std::string_view name) {
  return folder + "/" + std::string(name);
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

Result<void> sync_folder(const std::string& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return Error::from_errno("Cannot sync the folder " + folder);
  return ok();
}

Result<void> make_folder(const std::string& folder) {
  std::error_code code;
  fs::create_directories(fs::path(folder).parent_path(), code);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return Error::from_errno("Making " + folder);
  return ok();
}

// Locks the journal, which a coordinator locks before anything else. Returns an empty descriptor if there is
// no journal: no coordinator can then run in the folder.
Result<UniqueFd> lock_journal(const std::string& folder) {
  const std::string path = path_of(folder, kJournal);
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd && errno == ENOENT) return fd;
  if (!fd) return Error::from_errno("Opening " + path);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    return Error(ErrorCode::kRefused, "A coordinator runs in " + folder + ": stop that coordinator first");
  return fd;
}

// New parts that are written next to the folder's files. They are removed unless they get their final names.
class Staged {
 public:
  explicit Staged(std::string folder) : folder_(std::move(folder)) {}
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;
  ~Staged() {
    for (const std::string_view part : kParts) ::unlink(path(part).c_str());
  }

  Result<void> write(const BackupFile& file) {
    for (std::size_t i = 0; i < kParts.size(); ++i) {
      ::unlink(path(kParts[i]).c_str());
      has_[i] = file.contents().has(i);
      if (!has_[i]) continue;
      UniqueFd fd(::open(path(kParts[i]).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      if (!fd) return Error::from_errno("Creating " + path(kParts[i]));
      CKPT_TRYV(file.extract(i, fd.get()));
      if (::fsync(fd.get()) != 0) return Error::from_errno("fsync of " + path(kParts[i]));
      // The lock is taken before the final name is set, so that no coordinator that starts meanwhile gets the
      // lock.
      if (kParts[i] == kJournal && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
        return Error::from_errno("Locking " + path(kParts[i]));
      held_.push_back(std::move(fd));
    }
    return ok();
  }
  Result<void> put_in_place() {
    for (const std::size_t i : kOrder) {
      if (!has_[i]) continue;
      if (::rename(path(kParts[i]).c_str(), path_of(folder_, kParts[i]).c_str()) != 0)
        return Error::from_errno("Restoring " + std::string(kParts[i]));
    }
    return sync_folder(folder_);
  }

 private:
  [[nodiscard]] std::string path(std::string_view part) const {
    return path_of(folder_, part) + ".restoring";
  }
  std::string folder_;
  std::array<bool, kParts.size()> has_{};
  std::vector<UniqueFd> held_;
};

// Moves the existing files to the folder `aside`. Returns true if there were any files.
Result<bool> put_aside(const std::string& folder, const std::string& aside) {
  std::vector<std::string_view> names(kParts.begin(), kParts.end());
  names.insert(names.end(), kStoreCompanions.begin(), kStoreCompanions.end());
  std::erase_if(names, [&folder](std::string_view name) { return !exists(path_of(folder, name)); });
  if (names.empty()) return false;
  const std::string to = path_of(folder, aside);
  if (::mkdir(to.c_str(), 0700) != 0) return Error::from_errno("Making " + to);
  for (const std::string_view name : names) {
    if (::rename(path_of(folder, name).c_str(), path_of(to, name).c_str()) != 0)
      return Error::from_errno("Moving aside " + std::string(name));
  }
  CKPT_TRYV(sync_folder(to));
  CKPT_TRYV(sync_folder(folder));
  return true;
}

}  // namespace

Result<Restored> restore(const BackupFile& file, const std::string& folder, bool replace,
                         const std::string& aside) {
  CKPT_TRYV(file.verify());
  CKPT_TRYV(make_folder(folder));
  CKPT_TRY(held, lock_journal(folder));
  if (!replace && (held || exists(path_of(folder, kStore))))
    return Error(
        ErrorCode::kRefused,
        folder + " has a store already; --replace moves that store aside and puts the backup in its place");
  Staged staged(folder);
  CKPT_TRYV(staged.write(file));
  CKPT_TRY(was_there, put_aside(folder, aside));
  CKPT_TRYV(staged.put_in_place());
  return Restored{was_there ? path_of(folder, aside) : ""};
}

}  // namespace ckpt::backup
