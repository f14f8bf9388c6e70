// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/local/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "libckpt/base/fd.h"

namespace ckpt::checkpoint_store {
namespace {

constexpr std::string_view kUnfinished = ".new";
// The size from which the kernel is requested to begin a write at once, so that little is left for sync().
constexpr std::size_t kLargeWrite = 1 << 20;

Error failed(const char* what, const std::string& path) {
  const int number = errno;
  auto error = Error::from_errno(number, std::string("Cannot ") + what + " " + path);
  switch (number) {
    case ENOENT:
      return Error(ErrorCode::kNotFound, path + " does not exist").caused_by(std::move(error));
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Error(ErrorCode::kRefused, "No space for " + path + ": free some space, or keep fewer versions")
          .caused_by(std::move(error));
    default:
      return error;
  }
}

class PosixFile : public File {
 public:
  PosixFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  Result<void> write_at(std::uint64_t at, std::span<const std::byte> bytes) override {
    const auto begin = static_cast<off_t>(at);
    const std::size_t count = bytes.size();
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return failed("write", path_);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      at += static_cast<std::uint64_t>(n);
    }
    if (count >= kLargeWrite)
      ::sync_file_range(fd_.get(), begin, static_cast<off_t>(count), SYNC_FILE_RANGE_WRITE);
    return ok();
  }

  Result<std::size_t> read_at(std::uint64_t at, std::span<std::byte> out) const override {
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t n =
          ::pread(fd_.get(), out.data() + done, out.size() - done, static_cast<off_t>(at + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return failed("read", path_);
      if (n == 0) break;
      done += static_cast<std::size_t>(n);
    }
    return done;
  }

  void expect(std::uint64_t at, std::uint64_t bytes) const override {
    (void)::posix_fadvise(fd_.get(), static_cast<off_t>(at), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
  }

  Result<std::uint64_t> size() const override {
    struct stat info {};
    if (::fstat(fd_.get(), &info) != 0) return failed("look at", path_);
    return static_cast<std::uint64_t>(info.st_size);
  }

  Result<void> sync() override {
    while (::fdatasync(fd_.get()) != 0)
      if (errno != EINTR) return failed("sync", path_);
    return ok();
  }

 private:
  std::string path_;
  UniqueFd fd_;
};

class PosixLock : public FileLock {
 public:
  explicit PosixLock(UniqueFd fd) : fd_(std::move(fd)) {}

 private:
  UniqueFd fd_;
};

class PosixFiles : public Files {
 public:
  Result<std::unique_ptr<File>> create(const std::string& path) override {
    return open_as(path, O_RDWR | O_CREAT | O_TRUNC, "make");
  }
  Result<std::unique_ptr<File>> open(const std::string& path) override {
    return open_as(path, O_RDONLY, "open");
  }
  Result<void> rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return failed("rename", from);
    return ok();
  }
  Result<void> remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return failed("remove", path);
    return ok();
  }
  Result<void> make_folder(const std::string& path) override {
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return failed("create the folder", path);
    return ok();
  }
  Result<void> remove_folder(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0) return failed("remove the folder", path);
    return ok();
  }
  Result<std::vector<FolderEntry>> list(const std::string& path) override;
  Result<void> sync_folder(const std::string& path) override {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd || ::fsync(fd.get()) != 0) return failed("sync the folder", path);
    return ok();
  }
  Result<std::unique_ptr<FileLock>> lock(const std::string& path) override {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return failed("open", path);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return failed("lock", path);
      return Error(ErrorCode::kRefused,
                   path + " is in use by another process: a checkpoint store has only one writer");
    }
    return std::unique_ptr<FileLock>(std::make_unique<PosixLock>(std::move(fd)));
  }

 private:
  static Result<std::unique_ptr<File>> open_as(const std::string& path, int flags, const char* what) {
    UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return failed(what, path);
    return std::unique_ptr<File>(std::make_unique<PosixFile>(path, std::move(fd)));
  }
};

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

Result<std::vector<FolderEntry>> PosixFiles::list(const std::string& path) {
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir(path.c_str()));
  if (!folder) return failed("read the folder", path);
  std::vector<FolderEntry> entries;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(folder.get());
    if (entry == nullptr) break;
    FolderEntry found{entry->d_name};
    if (found.name == "." || found.name == "..") continue;
    struct stat info {};
    if (::fstatat(::dirfd(folder.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;  // the file was removed meanwhile
      return failed("look at", path + "/" + found.name);
    }
    found.is_folder = S_ISDIR(info.st_mode);
    found.bytes = S_ISREG(info.st_mode) ? static_cast<std::uint64_t>(info.st_size) : 0;
    entries.push_back(std::move(found));
  }
  if (errno != 0) return failed("read the folder", path);
  std::sort(entries.begin(), entries.end(),
            [](const FolderEntry& a, const FolderEntry& b) { return a.name < b.name; });
  return entries;
}

Result<void> write_synced(Files& files, const std::string& path, std::span<const std::byte> bytes) {
  CKPT_TRY(file, files.create(path));
  CKPT_TRYV(file->write_at(0, bytes));
  return file->sync();
}

}  // namespace

Files& posix_files() {
  static PosixFiles files;
  return files;
}

Result<std::vector<std::byte>> read_whole(Files& files, const std::string& path, std::uint64_t limit_bytes) {
  CKPT_TRY(file, files.open(path));
  CKPT_TRY(size, file->size());
  if (size > limit_bytes)
    return Error(ErrorCode::kCorrupt,
                 path + " is " + std::to_string(size) + " bytes long, which exceeds the limit");
  std::vector<std::byte> bytes(size);
  CKPT_TRY(count, file->read_at(0, bytes));
  bytes.resize(count);
  return bytes;
}

Result<void> write_whole(Files& files, const std::string& folder, const std::string& name,
                         std::span<const std::byte> bytes) {
  const std::string path = folder + "/" + name;
  const std::string next = folder + "/" + unfinished(name);
  auto written = write_synced(files, next, bytes);
  if (written) written = files.rename(next, path);
  if (!written) {
    // A file that cannot be removed here is removed when the checkpoint store is opened again.
    (void)files.remove(next);
    return written;
  }
  auto synced = files.sync_folder(folder);
  if (synced) return synced;
  // The error is not kRefused, which would mean that no file exists.
  return Error(ErrorCode::kIo, "It is unknown whether " + path + " is on the disk")
      .caused_by(std::move(synced).error());
}

std::string unfinished(const std::string& name) {
  return name + std::string(kUnfinished);
}
bool is_unfinished(const std::string& name) {
  return name.ends_with(kUnfinished);
}

}  // namespace ckpt::checkpoint_store
