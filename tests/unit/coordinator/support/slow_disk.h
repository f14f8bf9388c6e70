// SPDX-License-Identifier: Apache-2.0
// The disk of a test's process. It counts the syncs of each thread, delays them and makes them fail. This
// applies to all files, or to those with a given name. It replaces the C library's fsync, fdatasync, pwrite
// and rename.
// Threads: any.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace ckpt::coordinator::test {

class SlowDisk {
 public:
  int sync(long call, int fd);
  long write(int fd, const void* bytes, std::size_t count, long at);
  int rename(const char* from, const char* to);

  // Holds up the syncs of the files with this name; an empty name means every file.
  void hold(bool held, const std::string& file = {});
  // Exempts the thread from being held up.
  void spare(std::thread::id thread);
  void fail(int error, const std::string& file = {});
  // Makes writes to the file fail with `error`; 0 makes them succeed again.
  void fail_writes(int error, const std::string& file);
  // Waits until a thread waits for the held disk.
  bool wait_for_a_sync();
  int syncs_of(std::thread::id thread);
  int syncs();
  // Returns the number of renames onto a file of that name.
  int replaced(const std::string& file);
  int replaced_by(std::thread::id thread);
  int refused_writes();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::thread::id, int> syncs_;
  std::map<std::string, int> replaced_;
  std::map<std::thread::id, int> replaced_by_;
  int all_ = 0;
  int waiting_ = 0;
  bool held_ = false;
  std::string held_file_;
  std::thread::id spared_;
  int error_ = 0;
  std::string failing_file_;
  int write_error_ = 0;
  int refused_writes_ = 0;
  std::string unwritable_file_;
};

SlowDisk& disk();

}  // namespace ckpt::coordinator::test
