// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/cache_files/cache_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>
#include <sstream>

#include "agent/host_process/cache_files/cache_place.h"
#include "agent/host_process/processes/process_tree.h"
#include "libckpt/protocol/wire/codec.h"

namespace ckpt::agent::host {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxMapsOfCaches = 64u << 20;
constexpr std::size_t kMaxCacheIndexBytes = 4u << 20;
constexpr std::size_t kMaxCachePath = 4096;
constexpr unsigned kCacheRights = 0777;
const std::string kCacheIndex = "/cache-files.img";

std::string cache_content(const std::string& images, std::size_t number) {
  return images + "/cache-file-" + std::to_string(number) + ".img";
}

CacheOwner owner_of(const CacheFile& file) {
  CacheOwner owner;
  owner.uid = file.uid;
  owner.gid = file.gid;
  return owner;
}

void add_mapped(pid_t pid, const std::vector<std::string>& folders, std::set<std::string>& paths) {
  const auto maps = read_file(proc_path(pid, "/maps"), kMaxMapsOfCaches);
  if (!maps) return;
  std::istringstream lines(*maps);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find('/');
    if (at == std::string::npos) continue;
    const bool is_written = line.find("w-s ") != std::string::npos || line.find("wxs ") != std::string::npos;
    if (std::string path = line.substr(at); !is_written && is_cache_file(path, folders))
      paths.insert(std::move(path));
  }
}

void add_open(pid_t pid, const std::vector<std::string>& folders, std::set<std::string>& paths) {
  std::error_code gone;
  for (const auto& item : fs::directory_iterator(proc_path(pid, "/fd"), gone)) {
    std::error_code failed;
    std::string path = fs::read_symlink(item.path(), failed).string();
    struct stat how {};
    const bool is_written = ::lstat(item.path().c_str(), &how) == 0 && (how.st_mode & S_IWUSR) != 0;
    if (!is_written && is_cache_file(path, folders)) paths.insert(std::move(path));
  }
}

bool describe_cache_file(CacheFile& file) {
  struct stat facts {};
  if (::lstat(file.path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return false;
  file.bytes = static_cast<std::uint64_t>(facts.st_size);
  file.mode = facts.st_mode & kCacheRights;
  file.uid = facts.st_uid;
  file.gid = facts.st_gid;
  return true;
}

Result<void> make_one(const CacheFile& file, const std::string& content, MadeCacheFiles& made) {
  CKPT_TRY(folder, open_cache_folder(file.path, owner_of(file), &made.folders));
  const std::string name = fs::path(file.path).filename().string();
  CKPT_TRY(is_new, place_cache_file(folder, name, content, owner_of(file), file.mode));
  if (is_new) made.files.push_back(file.path);
  return ok();
}

// Copies a cache file. The program may change its folders during the copy, so the function checks that the
// file is the one that was described.
Result<void> save_one(const CacheFile& file, const std::string& to) {
  const UniqueFd source(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!source) return Error::from_errno("Cannot open " + file.path);
  struct stat facts {};
  if (::fstat(source.get(), &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_uid != file.uid ||
      static_cast<std::uint64_t>(facts.st_size) != file.bytes)
    return Error(ErrorCode::kAborted, file.path + " changed while the program was saved: try again");
  const UniqueFd target(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!target) return Error::from_errno("Cannot create " + to);
  return copy_all(target.get(), source.get(), file.path);
}

Result<CacheFiles> read_cache_index(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return CacheFiles();
  CKPT_TRY(text, read_file(path, kMaxCacheIndexBytes));
  CKPT_TRY(files, wire::decode<CacheFiles>(std::as_bytes(std::span(text))));
  if (is_proper(files)) return files;
  return Error(ErrorCode::kCorrupt, "The image's list of cache files is malformed");
}

}  // namespace

std::uint64_t CacheFiles::bytes() const {
  std::uint64_t sum = 0;
  for (const CacheFile& file : files) sum += file.bytes;
  return sum;
}

const CacheFile* CacheFiles::find(const std::string& path) const {
  const auto at = std::ranges::find(files, path, &CacheFile::path);
  return at == files.end() ? nullptr : &*at;
}

bool is_cache_file(const std::string& path, const std::vector<std::string>& folders) {
  if (!path.starts_with('/') || path.size() > kMaxCachePath || path.ends_with('/') ||
      path.find('\0') != std::string::npos || fs::path(path).lexically_normal() != path)
    return false;
  return std::ranges::any_of(folders, [&path](const std::string& folder) {
    return folder.starts_with('*') ? path.find(folder.substr(1)) != std::string::npos
                                   : path.starts_with(folder);
  });
}

Result<CacheFiles> cache_files_of(pid_t root, const std::vector<std::string>& folders) {
  CacheFiles found;
  if (folders.empty()) return found;
  CKPT_TRY(processes, processes_of(root));
  std::set<std::string> paths;
  for (const pid_t pid : processes) {
    add_mapped(pid, folders, paths);
    add_open(pid, folders, paths);
  }
  std::uint64_t bytes = 0;
  for (const std::string& path : paths) {
    CacheFile file;
    file.path = path;
    if (!describe_cache_file(file) || bytes + file.bytes > kMaxCacheBytes) continue;
    bytes += file.bytes;
    found.files.push_back(std::move(file));
    if (found.files.size() == kMaxCacheFiles) break;
  }
  return found;
}

std::string why_not_made(const CacheFile& file, const std::vector<std::string>& folders) {
  if (!is_cache_file(file.path, folders))
    return file.path + " does not exist at the target, and is not in any of the target's cache_folders";
  const auto folder = open_cache_folder(file.path, owner_of(file), nullptr);
  return folder ? std::string() : folder.error().message();
}

bool is_proper(const CacheFiles& files) {
  return files.files.size() <= kMaxCacheFiles && std::ranges::all_of(files.files, [](const CacheFile& file) {
           return is_cache_file(file.path, {"/"}) && (file.mode & ~kCacheRights) == 0;
         });
}

Result<void> save_cache_files(pid_t root, const std::vector<std::string>& folders,
                              const std::string& images) {
  CKPT_TRY(found, cache_files_of(root, folders));
  if (found.files.empty()) return ok();
  const std::vector<std::byte> bytes = wire::encode(found);
  CKPT_TRYV(write_file_durably(images + kCacheIndex,
                               std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
  for (std::size_t i = 0; i < found.files.size(); ++i) {
    CKPT_TRYV(save_one(found.files[i], cache_content(images, i)));
  }
  return ok();
}

Result<MadeCacheFiles> make_cache_files(const std::string& images, const std::vector<std::string>& folders) {
  CKPT_TRY(wanted, read_cache_index(images + kCacheIndex));
  MadeCacheFiles made;
  Result<void> done = ok();
  for (std::size_t i = 0; done && i < wanted.files.size(); ++i) {
    const CacheFile& file = wanted.files[i];
    const std::string content = cache_content(images, i);
    if (::access(file.path.c_str(), F_OK) != 0) {
      const std::string reason = why_not_made(file, folders);
      done = reason.empty() ? make_one(file, content, made) : Error(ErrorCode::kRefused, reason);
    }
    ::unlink(content.c_str());
  }
  if (done) return made;
  remove_cache_files(made);
  return std::move(done).error();
}

void remove_cache_files(const MadeCacheFiles& made) {
  for (const std::string& path : made.files) ::unlink(path.c_str());
  for (auto at = made.folders.rbegin(); at != made.folders.rend(); ++at) ::rmdir(at->c_str());
}

}  // namespace ckpt::agent::host
