// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/named_memory/shared_folder_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/fanotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "agent/host_process/named_memory/names_alone.h"
#include "agent/host_process/named_memory/shared_folder.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kEventsBytes = 16u << 10;

// Returns the file's name from the event, where it follows the folder's handle. An empty string means that
// the event has no name.
std::string name_of_event(const fanotify_event_metadata& event) {
  const auto* const bytes = reinterpret_cast<const char*>(&event);
  std::size_t at = event.metadata_len;
  while (at + sizeof(fanotify_event_info_header) <= event.event_len) {
    fanotify_event_info_header header{};
    std::memcpy(&header, bytes + at, sizeof header);
    if (header.len < sizeof header || at + header.len > event.event_len) return {};
    if (header.info_type == FAN_EVENT_INFO_TYPE_DFID_NAME) {
      const std::size_t handle = at + sizeof(fanotify_event_info_fid);
      file_handle facts{};
      if (handle + sizeof facts > at + header.len) return {};
      std::memcpy(&facts, bytes + handle, sizeof facts);
      const std::size_t name = handle + sizeof facts + facts.handle_bytes;
      if (name >= at + header.len) return {};
      return std::string(bytes + name, ::strnlen(bytes + name, at + header.len - name));
    }
    at += header.len;
  }
  return {};
}

void take_events(int watch) {
  alignas(fanotify_event_metadata) std::array<char, kEventsBytes> buffer{};
  const ssize_t got = ::read(watch, buffer.data(), buffer.size());
  auto left = static_cast<long>(got);
  const auto* event = reinterpret_cast<const fanotify_event_metadata*>(buffer.data());
  for (; got > 0 && FAN_EVENT_OK(event, left); event = FAN_EVENT_NEXT(event, left)) {
    if (event->fd >= 0) ::close(event->fd);
    const std::string name = name_of_event(*event);
    if (name.empty() || name.find('/') != std::string::npos || event->pid <= 0) continue;
    set_mark(kSharedFolder + name, mark_of_maker(event->pid), false);
  }
}

void watch_until(const UniqueFd& watch, const UniqueFd& end) {
  std::array<pollfd, 2> watched = {{{watch.get(), POLLIN, 0}, {end.get(), 0, 0}}};
  for (;;) {
    if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) return;
    if (watched[1].revents != 0) return;
    if ((watched[0].revents & POLLIN) != 0) take_events(watch.get());
  }
}

}  // namespace

Result<SharedFolderWatch> SharedFolderWatch::start() {
  const auto refused = [] {
    return Error(ErrorCode::kNotSupported, ErrorDomain::kErrno, errno,
                 std::string("Cannot watch which processes create files in ") + kSharedFolder);
  };
  UniqueFd watch(::fanotify_init(
      FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | FAN_REPORT_DFID_NAME | FAN_UNLIMITED_QUEUE, O_RDONLY));
  if (!watch) return refused();
  if (::fanotify_mark(watch.get(), FAN_MARK_ADD | FAN_MARK_ONLYDIR, FAN_CREATE | FAN_MOVED_TO | FAN_ONDIR,
                      AT_FDCWD, kSharedFolder) != 0)
    return refused();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::from_errno("Cannot create a pipe");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  try {
    std::thread thread([watch = std::move(watch), end = std::move(read_end)] { watch_until(watch, end); });
    return SharedFolderWatch(std::move(write_end), std::move(thread));
  } catch (const std::system_error&) {
    return Error(ErrorCode::kOutOfMemory, "Cannot start a thread to watch /dev/shm");
  }
}

SharedFolderWatch::~SharedFolderWatch() {
  end_.reset();
  if (thread_.joinable()) thread_.join();
}

}  // namespace ckpt::agent::host
