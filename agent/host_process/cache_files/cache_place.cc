// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/cache_files/cache_place.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>

namespace ckpt::agent::host {
namespace {

constexpr mode_t kFolderMode = 0755;
constexpr unsigned kFileRights = 0777;
constexpr std::size_t kCopiedAtOnce = std::size_t{1} << 30;

Result<void> make_missing(int parent, const std::string& name, const std::string& path,
                          const CacheOwner& owner) {
  if (::mkdirat(parent, name.c_str(), kFolderMode) != 0) return Error::from_errno("Cannot create " + path);
  if (::fchownat(parent, name.c_str(), owner.uid, owner.gid, AT_SYMLINK_NOFOLLOW) == 0) return ok();
  auto failed = Error::from_errno("Cannot create " + path);
  ::unlinkat(parent, name.c_str(), AT_REMOVEDIR);
  return failed;
}

// Checks that the folder belongs to root or to the program's user.
Result<void> check_owner(int folder, const std::string& path, const CacheOwner& owner) {
  struct stat facts {};
  if (::fstat(folder, &facts) != 0) return Error::from_errno("Cannot inspect " + path);
  if (facts.st_uid == 0 || facts.st_uid == owner.uid) return ok();
  return Error(ErrorCode::kRefused, path + " belongs to another user at the target");
}

}  // namespace

Result<void> copy_all(int to, int from, const std::string& what) {
  for (;;) {
    const ssize_t done = ::sendfile(to, from, nullptr, kCopiedAtOnce);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return Error::from_errno("Cannot copy " + what);
    if (done == 0) return ok();
  }
}

Result<UniqueFd> open_cache_folder(const std::string& path, const CacheOwner& owner,
                                   std::vector<std::string>* made) {
  UniqueFd folder(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::string at;
  for (const auto& part : std::filesystem::path(path).parent_path().relative_path()) {
    const std::string name = part.string();
    at += "/" + name;
    UniqueFd next(::openat(folder.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next && errno == ENOENT) {
      if (made == nullptr) return UniqueFd();
      CKPT_TRYV(make_missing(folder.get(), name, at, owner));
      made->push_back(at);
      next.reset(::openat(folder.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    }
    if (!next)
      return Error(ErrorCode::kRefused, ErrorDomain::kErrno, errno, at + " is not a folder at the target");
    CKPT_TRYV(check_owner(next.get(), at, owner));
    folder = std::move(next);
  }
  return folder;
}

Result<bool> place_cache_file(const UniqueFd& folder, const std::string& name, const std::string& content,
                              const CacheOwner& owner, unsigned mode) {
  const UniqueFd source(::open(content.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!source) return Error::from_errno("Cannot open " + content);
  const std::string draft = ".gpumigrate-" + std::to_string(::getpid()) + "-" + name.substr(0, 64);
  const UniqueFd target(
      ::openat(folder.get(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!target) return Error::from_errno("Cannot create " + name + " in a cache");
  auto written = copy_all(target.get(), source.get(), name);
  if (written &&
      (::fchown(target.get(), owner.uid, owner.gid) != 0 || ::fchmod(target.get(), mode & kFileRights) != 0))
    written = Error::from_errno("Cannot create " + name + " in a cache");
  bool is_new = false;
  if (written) {
    is_new = ::linkat(folder.get(), draft.c_str(), folder.get(), name.c_str(), 0) == 0;
    if (!is_new && errno != EEXIST) written = Error::from_errno("Cannot create " + name + " in a cache");
  }
  ::unlinkat(folder.get(), draft.c_str(), 0);
  CKPT_TRYV(std::move(written));
  return is_new;
}

}  // namespace ckpt::agent::host
