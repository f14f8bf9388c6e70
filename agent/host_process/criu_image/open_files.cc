// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/open_files.h"

#include <fcntl.h>
#include <sys/timerfd.h>

#include "agent/host_process/criu_image/criu_records.h"
#include "agent/host_process/criu_image/files_image.h"
#include "criu_images.pb.h"

namespace ckpt::agent::host {
namespace {

// Checks whether a repeating timer has expired and is no longer armed. A nonzero interval is not sufficient,
// because a disarmed timer may have one, too. An expired timer has ticks that no process has read.
bool stands_still(const criu::timerfd_entry& timer) {
  const bool is_armed = timer.vsec() != 0 || timer.vnsec() != 0;
  const bool repeats = timer.isec() != 0 || timer.insec() != 0;
  return timer.ticks() != 0 && !is_armed && repeats;
}

// Makes an absolute timer relative, because the image contains its remaining time. CRIU would add the clock's
// whole seconds to that time. The timer would then expire up to a second early, or immediately if it is
// disarmed.
void settle_absolute(criu::timerfd_entry& timer) {
  const std::uint32_t flags = timer.settime_flags();
  if ((flags & TFD_TIMER_ABSTIME) == 0) return;
  const bool is_armed = timer.vsec() != 0 || timer.vnsec() != 0;
  if (is_armed && (flags & TFD_TIMER_CANCEL_ON_SET) != 0) {
    timer.set_vsec(timer.vsec() + 1);  // adds a second and keeps the timer absolute, because only an absolute
                                       // timer is canceled when its clock is set
    return;
  }
  timer.set_settime_flags(flags & ~static_cast<std::uint32_t>(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET));
}

bool settle_timer(criu::timerfd_entry& timer) {
  const std::string before = timer.SerializeAsString();
  if (stands_still(timer)) {
    timer.set_vsec(timer.isec());
    timer.set_vnsec(timer.insec());
  }
  settle_absolute(timer);
  return timer.SerializeAsString() != before;
}

// Returns the record with the changed timer or path. Other records stay unchanged, byte for byte.
Result<std::string> settled(const std::string& record, const OtherPath& other_path,
                            std::vector<OpenFile>& found) {
  CKPT_TRY(file, parse_record<criu::file_entry>(record, "files.img"));
  if (file.has_tfd()) return settle_timer(*file.mutable_tfd()) ? file.SerializeAsString() : record;
  if (!file.has_reg()) return record;
  const std::string path = other_path(file.reg().name());
  OpenFile& open = found.emplace_back();
  open.path = path;
  open.is_written = (file.reg().flags() & O_ACCMODE) != O_RDONLY;
  if (path == file.reg().name()) return record;
  file.mutable_reg()->set_name(path);
  return file.SerializeAsString();
}

Result<std::string> without_length(const std::string& record, const std::set<std::string>& paths) {
  CKPT_TRY(file, parse_record<criu::file_entry>(record, "files.img"));
  if (!file.has_reg() || !file.reg().has_size() || !paths.contains(file.reg().name())) return record;
  file.mutable_reg()->clear_size();
  return file.SerializeAsString();
}

}  // namespace

Result<std::string> with_settled_files(const std::string& files, const OtherPath& other_path,
                                       std::vector<OpenFile>& found) {
  return with_changed_records(
      files, [&other_path, &found](const std::string& record) { return settled(record, other_path, found); });
}

Result<std::string> without_lengths(const std::string& files, const std::set<std::string>& paths) {
  return with_changed_records(files,
                              [&paths](const std::string& record) { return without_length(record, paths); });
}

Result<std::vector<OpenFile>> settle_open_files(const std::string& images, const OtherPath& other_path) {
  std::vector<OpenFile> found;
  CKPT_TRYV(change_files_image(images, [&other_path, &found](const std::string& record) {
    return settled(record, other_path, found);
  }));
  return found;
}

Result<void> remove_lengths(const std::string& images, const std::set<std::string>& paths) {
  if (paths.empty()) return ok();
  return change_files_image(images,
                            [&paths](const std::string& record) { return without_length(record, paths); });
}

}  // namespace ckpt::agent::host
