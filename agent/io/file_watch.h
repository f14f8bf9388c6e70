// SPDX-License-Identifier: Apache-2.0
// Wakes coroutines when a file grew or a folder gained an entry. The whole agent uses one inotify instance.
// Threads: the event loop. Ownership: the destructor of a Watch stops its notifications. The AsyncEvent must
// outlive the Watch. Errors: kIo if the system refuses (limits of fs.inotify).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "agent/io/async.h"
#include "libckpt/base/result.h"

namespace ckpt::agent {

class FileWatch : public std::enable_shared_from_this<FileWatch> {
 public:
  class Watch {
   public:
    Watch(std::shared_ptr<FileWatch> owner, int descriptor, AsyncEvent* signal)
        : owner_(std::move(owner)), descriptor_(descriptor), signal_(signal) {}
    ~Watch() { owner_->remove(descriptor_, signal_); }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    std::shared_ptr<FileWatch> owner_;
    int descriptor_;
    AsyncEvent* signal_;
  };

  static Result<std::shared_ptr<FileWatch>> create(const asio::any_io_executor& executor);
  // Notifies `signal` at every change of `path`. A change is a write to a file, or a new entry in a folder.
  Result<std::unique_ptr<Watch>> watch(const std::string& path, AsyncEvent* signal);

 private:
  FileWatch(const asio::any_io_executor& executor, int inotify) : stream_(executor, inotify) {}
  void await_events();
  void read_events();
  void remove(int descriptor, AsyncEvent* signal);

  asio::posix::stream_descriptor stream_;
  std::multimap<int, AsyncEvent*> watching_;
};

}  // namespace ckpt::agent
