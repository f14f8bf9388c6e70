// SPDX-License-Identifier: Apache-2.0
// A library for LD_PRELOAD that records a program's changes to files below CKPT_RECORD_FOLDER. It writes them
// in their order into CKPT_RECORD_JOURNAL (write_journal.h). Several programs may share a journal: each entry
// is one write(2) at its end.
// Threads: any. Without both variables the library does nothing. An operation that cannot be recorded ends
// the program, since a test must not continue without it.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "tests/fault/write_journal_format.h"

namespace {

using ckpt::test::JournalHead;
using ckpt::test::JournalKind;

struct Opened {
  std::string path;
  bool is_folder = false;
};

struct Recorder {
  std::mutex mutex;
  std::string folder;
  int journal = -1;
  std::map<int, Opened> opened;  // descriptors of files below the folder that are open for writing or syncing
};

template <class F>
F real(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

// Returns the recorder. It is never destroyed, since other threads write until the very end.
Recorder& recorder() {
  static Recorder* const made = [] {
    auto* r = new Recorder;
    const char* folder = std::getenv("CKPT_RECORD_FOLDER");
    const char* journal = std::getenv("CKPT_RECORD_JOURNAL");
    if (folder == nullptr || journal == nullptr) return r;
    r->folder = folder;
    static const auto real_open = real<int (*)(const char*, int, ...)>("open");
    r->journal = real_open(journal, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (r->journal < 0) std::abort();
    return r;
  }();
  return *made;
}

bool is_recorded(const char* path) {
  const Recorder& r = recorder();
  if (r.journal < 0 || path == nullptr) return false;
  const std::size_t length = r.folder.size();
  return std::strncmp(path, r.folder.c_str(), length) == 0 && (path[length] == '/' || path[length] == '\0');
}

void write_down(JournalKind kind, const std::string& path, const std::string& other = {},
                std::uint64_t offset = 0, const void* bytes = nullptr, std::size_t count = 0) {
  JournalHead head;
  head.kind = kind;
  head.path_bytes = static_cast<std::uint32_t>(path.size());
  head.other_bytes = static_cast<std::uint32_t>(other.size());
  head.offset = offset;
  head.bytes = count;
  const iovec parts[] = {{&head, sizeof head},
                         {const_cast<char*>(path.data()), path.size()},
                         {const_cast<char*>(other.data()), other.size()},
                         {const_cast<void*>(bytes), count}};
  const auto all = static_cast<ssize_t>(sizeof head + path.size() + other.size() + count);
  if (::writev(recorder().journal, parts, 4) != all) std::abort();
}

int open_recorded(const char* name, const char* path, int flags, mode_t mode) {
  const int fd = real<int (*)(const char*, int, ...)>(name)(path, flags, mode);
  if (fd < 0 || !is_recorded(path)) return fd;
  const bool is_folder = (flags & O_DIRECTORY) != 0;
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  const std::lock_guard lock(recorder().mutex);
  // A lock's file has no content, and is created where it is missing.
  if (writes && (flags & O_TRUNC) != 0) write_down(JournalKind::kCreate, path);
  if (is_folder || writes) recorder().opened[fd] = {path, is_folder};
  return fd;
}

ssize_t write_recorded(const char* name, int fd, const void* bytes, std::size_t count, off_t offset) {
  {
    const std::lock_guard lock(recorder().mutex);
    if (const auto file = recorder().opened.find(fd); file != recorder().opened.end())
      write_down(JournalKind::kWrite, file->second.path, {}, static_cast<std::uint64_t>(offset), bytes,
                 count);
  }
  return real<ssize_t (*)(int, const void*, std::size_t, off_t)>(name)(fd, bytes, count, offset);
}

int sync_recorded(const char* name, int fd) {
  const int done = real<int (*)(int)>(name)(fd);
  const std::lock_guard lock(recorder().mutex);
  const auto file = recorder().opened.find(fd);
  if (done == 0 && file != recorder().opened.end())
    write_down(file->second.is_folder ? JournalKind::kSyncFolder : JournalKind::kSync, file->second.path);
  return done;
}

void name_recorded(JournalKind kind, const char* path) {
  if (!is_recorded(path)) return;
  const std::lock_guard lock(recorder().mutex);
  struct stat there {};
  const bool exists = ::lstat(path, &there) == 0;
  if (exists != (kind == JournalKind::kMakeFolder)) write_down(kind, path);
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = (flags & O_CREAT) != 0 ? static_cast<mode_t>(va_arg(more, int)) : 0;
  va_end(more);
  return open_recorded("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = (flags & O_CREAT) != 0 ? static_cast<mode_t>(va_arg(more, int)) : 0;
  va_end(more);
  return open_recorded("open64", path, flags, mode);
}

int close(int fd) {
  {
    const std::lock_guard lock(recorder().mutex);
    recorder().opened.erase(fd);
  }
  return real<int (*)(int)>("close")(fd);
}

ssize_t pwrite(int fd, const void* bytes, std::size_t count, off_t offset) {
  return write_recorded("pwrite", fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void* bytes, std::size_t count, off64_t offset) {
  return write_recorded("pwrite64", fd, bytes, count, offset);
}

int fsync(int fd) {
  return sync_recorded("fsync", fd);
}

int fdatasync(int fd) {
  return sync_recorded("fdatasync", fd);
}

int rename(const char* from, const char* to) noexcept {
  if (is_recorded(from)) {
    const std::lock_guard lock(recorder().mutex);
    write_down(JournalKind::kRename, from, to);
  }
  return real<int (*)(const char*, const char*)>("rename")(from, to);
}

int unlink(const char* path) noexcept {
  name_recorded(JournalKind::kRemove, path);
  return real<int (*)(const char*)>("unlink")(path);
}

int mkdir(const char* path, mode_t mode) noexcept {
  name_recorded(JournalKind::kMakeFolder, path);
  return real<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}

int rmdir(const char* path) noexcept {
  name_recorded(JournalKind::kRemoveFolder, path);
  return real<int (*)(const char*)>("rmdir")(path);
}

}  // extern "C"
