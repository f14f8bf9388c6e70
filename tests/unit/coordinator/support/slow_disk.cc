// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/coordinator/support/slow_disk.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

namespace ckpt::coordinator::test {
namespace {

constexpr std::chrono::seconds kSyncDeadline{30};

std::string last_part(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

std::string name_of_file(int fd) {
  std::array<char, 4096> path{};
  const ssize_t length =
      ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path.data(), path.size());
  return length < 0 ? "" : last_part(std::string(path.data(), static_cast<std::size_t>(length)));
}

}  // namespace

SlowDisk& disk() {
  static SlowDisk* const disk = new SlowDisk;  // outlives every thread
  return *disk;
}

int SlowDisk::sync(long call, int fd) {
  const std::string file = name_of_file(fd);
  std::unique_lock lock(mutex_);
  ++syncs_[std::this_thread::get_id()];
  ++all_;
  const bool spared = spared_ == std::this_thread::get_id();
  const auto is_held = [&] { return held_ && !spared && (held_file_.empty() || held_file_ == file); };
  if (is_held()) {
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !is_held(); });
    --waiting_;
  }
  if (error_ != 0 && (failing_file_.empty() || failing_file_ == file)) {
    errno = error_;
    return -1;
  }
  lock.unlock();
  return static_cast<int>(::syscall(call, fd));
}

long SlowDisk::write(int fd, const void* bytes, std::size_t count, long at) {
  {
    const std::lock_guard lock(mutex_);
    if (write_error_ != 0 && name_of_file(fd) == unwritable_file_) {
      ++refused_writes_;
      errno = write_error_;
      return -1;
    }
  }
  return ::syscall(SYS_pwrite64, fd, bytes, count, at);
}

int SlowDisk::rename(const char* from, const char* to) {
  {
    const std::lock_guard lock(mutex_);
    ++replaced_[last_part(to)];
    ++replaced_by_[std::this_thread::get_id()];
  }
  return static_cast<int>(::syscall(SYS_rename, from, to));
}

void SlowDisk::hold(bool held, const std::string& file) {
  const std::lock_guard lock(mutex_);
  held_ = held;
  held_file_ = file;
  changed_.notify_all();
}

void SlowDisk::spare(std::thread::id thread) {
  const std::lock_guard lock(mutex_);
  spared_ = thread;
}

void SlowDisk::fail(int error, const std::string& file) {
  const std::lock_guard lock(mutex_);
  error_ = error;
  failing_file_ = file;
}

void SlowDisk::fail_writes(int error, const std::string& file) {
  const std::lock_guard lock(mutex_);
  write_error_ = error;
  unwritable_file_ = file;
}

bool SlowDisk::wait_for_a_sync() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kSyncDeadline, [this] { return waiting_ > 0; });
}

int SlowDisk::syncs_of(std::thread::id thread) {
  const std::lock_guard lock(mutex_);
  return syncs_[thread];
}

int SlowDisk::syncs() {
  const std::lock_guard lock(mutex_);
  return all_;
}

int SlowDisk::replaced(const std::string& file) {
  const std::lock_guard lock(mutex_);
  return replaced_[file];
}

int SlowDisk::replaced_by(std::thread::id thread) {
  const std::lock_guard lock(mutex_);
  return replaced_by_[thread];
}

int SlowDisk::refused_writes() {
  const std::lock_guard lock(mutex_);
  return refused_writes_;
}

}  // namespace ckpt::coordinator::test

// Replaces the C library's fsync.
extern "C" int fsync(int fd) {
  return ckpt::coordinator::test::disk().sync(SYS_fsync, fd);
}
extern "C" int fdatasync(int fd) {
  return ckpt::coordinator::test::disk().sync(SYS_fdatasync, fd);
}
extern "C" ssize_t pwrite(int fd, const void* bytes, size_t count, off_t at) {
  return ckpt::coordinator::test::disk().write(fd, bytes, count, at);
}
extern "C" ssize_t pwrite64(int fd, const void* bytes, size_t count, off64_t at) {
  return ckpt::coordinator::test::disk().write(fd, bytes, count, at);
}
extern "C" int rename(const char* from, const char* to) {
  return ckpt::coordinator::test::disk().rename(from, to);
}
