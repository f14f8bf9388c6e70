// SPDX-License-Identifier: Apache-2.0
#include "agent/io/file_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace ckpt::agent {

Result<std::shared_ptr<FileWatch>> FileWatch::create(const asio::any_io_executor& executor) {
  const int inotify = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (inotify < 0) return Error::from_errno("Cannot watch files (inotify)");
  std::shared_ptr<FileWatch> watch(new FileWatch(executor, inotify));
  watch->await_events();
  return watch;
}

Result<std::unique_ptr<FileWatch::Watch>> FileWatch::watch(const std::string& path, AsyncEvent* signal) {
  const int descriptor = ::inotify_add_watch(stream_.native_handle(), path.c_str(),
                                             IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_ATTRIB);
  if (descriptor < 0) return Error::from_errno("Cannot watch " + path);
  watching_.emplace(descriptor, signal);
  return std::make_unique<Watch>(shared_from_this(), descriptor, signal);
}

void FileWatch::remove(int descriptor, AsyncEvent* signal) {
  const auto [begin, end] = watching_.equal_range(descriptor);
  for (auto it = begin; it != end; ++it) {
    if (it->second != signal) continue;
    watching_.erase(it);
    break;
  }
  if (!watching_.contains(descriptor)) ::inotify_rm_watch(stream_.native_handle(), descriptor);
}

void FileWatch::await_events() {
  stream_.async_wait(asio::posix::stream_descriptor::wait_read, [this](boost::system::error_code error) {
    if (error) return;
    read_events();
    await_events();
  });
}

void FileWatch::read_events() {
  alignas(inotify_event) std::array<char, 16384> buffer;
  for (;;) {
    const ssize_t got = ::read(stream_.native_handle(), buffer.data(), buffer.size());
    if (got <= 0) return;
    for (ssize_t at = 0; at < got;) {
      inotify_event event;
      std::memcpy(&event, buffer.data() + at, sizeof event);
      at += static_cast<ssize_t>(sizeof event + event.len);
      const auto [begin, end] = watching_.equal_range(event.wd);
      for (auto it = begin; it != end; ++it) it->second->notify();
    }
  }
}

}  // namespace ckpt::agent
