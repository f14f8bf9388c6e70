// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/handover/journal_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "libckpt/protocol/wire/codec.h"

namespace ckpt::migration {
namespace {

// The file format: 8 bytes "GPMJRNL2", then frames at multiples of 8, then zeros. A frame is {magic u32,
// length u32, crc32 of the body u32, index u32, body}. The index counts frames, so that an old frame that
// survived a rewrite is never taken for a new frame. In version 1, all frames are complete.
constexpr char kFileMagic[8] = {'G', 'P', 'M', 'J', 'R', 'N', 'L', '2'};
constexpr char kFileMagic1[8] = {'G', 'P', 'M', 'J', 'R', 'N', 'L', '1'};
constexpr std::uint32_t kFrameMagic = 0x4352'504a;
constexpr std::uint32_t kReferringMagic = 0x4352'504b;  // the magic of a frame whose plan is in an earlier
                                                        // record
constexpr std::uint64_t kStepBytes = 64 << 10;
constexpr std::uint32_t kMaxRecordBytes = 4 << 20;

struct FrameHead {
  std::uint32_t magic;
  std::uint32_t length;
  std::uint32_t crc;
  std::uint32_t index;
};
static_assert(sizeof(FrameHead) == 16);

constexpr std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + 7) & ~std::uint64_t{7};
}

std::span<const std::byte> bytes_of(const std::string& text, std::size_t at, std::size_t count) {
  return {reinterpret_cast<const std::byte*>(text.data()) + at, count};
}

struct Frame {
  FrameHead head;
  std::span<const std::byte> body;
};

// Returns the intact frame at `at`, if there is one.
std::optional<Frame> frame_at(const std::string& text, std::uint64_t at) {
  FrameHead head{};
  if (at + sizeof head > text.size()) return std::nullopt;
  std::memcpy(&head, text.data() + at, sizeof head);
  const bool known = head.magic == kFrameMagic || head.magic == kReferringMagic;
  if (!known || head.length > kMaxRecordBytes || head.length > text.size() - at - sizeof head)
    return std::nullopt;
  const auto body = bytes_of(text, at + sizeof head, head.length);
  if (wire::crc32(body) != head.crc) return std::nullopt;
  return Frame{head, body};
}

std::vector<std::byte> make_frame(std::span<const std::byte> body, std::uint32_t index, bool refers = false) {
  const FrameHead head{refers ? kReferringMagic : kFrameMagic, static_cast<std::uint32_t>(body.size()),
                       wire::crc32(body), index};
  std::vector<std::byte> frame(padded(sizeof head + body.size()));
  std::memcpy(frame.data(), &head, sizeof head);
  if (!body.empty()) std::memcpy(frame.data() + sizeof head, body.data(), body.size());
  return frame;
}

// Writes the bytes. Returns kRefused if the disk is full and no byte was written. After kIo and other errors,
// some bytes may have been written.
Result<void> write_at(int fd, std::span<const std::byte> bytes, std::uint64_t at, const std::string& path) {
  bool touched = false;
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const bool disk_full = errno == ENOSPC || errno == EFBIG || errno == EDQUOT;
      auto error = Error::from_errno("Cannot write the journal " + path);
      if (!disk_full || touched) return error;
      return Error(ErrorCode::kRefused, "No space for the journal " + path).caused_by(std::move(error));
    }
    touched = true;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    at += static_cast<std::uint64_t>(n);
  }
  return ok();
}

Result<void> sync(int fd, const std::string& path) {
  while (::fdatasync(fd) != 0)
    if (errno != EINTR) return Error::from_errno("Cannot sync the journal " + path);
  return ok();
}

// Syncs the folder: a new or renamed file is durable only after that.
Result<void> sync_folder_of(const std::string& path) {
  const std::string folder = path.find('/') == std::string::npos ? "." : path.substr(0, path.rfind('/') + 1);
  UniqueFd dir(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir || ::fsync(dir.get()) != 0)
    return Error::from_errno("Cannot sync the folder of the journal " + path);
  return ok();
}

Error full(const std::string& path, Error cause) {
  return Error(ErrorCode::kRefused,
               "No space for the journal " + path + ": free some space, or raise the file size limit")
      .caused_by(std::move(cause));
}

}  // namespace

Result<JournalFile> JournalFile::open(const std::string& path, const FrameHandler& handler) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return Error::from_errno("Cannot open the journal " + path);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    return Error(ErrorCode::kRefused, "The journal " + path + " is in use by another process");
  JournalFile file(path, std::move(fd));
  CKPT_TRYV(file.load(handler));
  return file;
}

Result<void> JournalFile::start() {
  if (::ftruncate(fd_.get(), 0) != 0) return Error::from_errno("Cannot start the journal " + path_);
  end_ = sizeof kFileMagic;
  capacity_ = 0;
  CKPT_TRYV(extend(end_));
  CKPT_TRYV(write_at(fd_.get(), std::as_bytes(std::span(kFileMagic)), 0, path_));
  CKPT_TRYV(sync(fd_.get(), path_));
  return sync_folder_of(path_);
}

Result<std::uint64_t> JournalFile::read_frames(const std::string& text, const FrameHandler& handler) {
  std::uint64_t at = sizeof kFileMagic;
  while (const auto frame = frame_at(text, at)) {
    const bool refers = frame->head.magic == kReferringMagic;
    if (frame->head.index != frames_ || (refers && !may_refer_)) break;
    CKPT_TRYV(handler(frame->body, refers, at));
    ++frames_;
    at += padded(sizeof(FrameHead) + frame->body.size());
  }
  return at;
}

Result<void> JournalFile::load(const FrameHandler& handler) {
  CKPT_TRY(text, read_file(path_, kMaxBytes));
  // The file is new, or its creator exited before the first sync. No message was sent on the basis of its
  // records.
  if (text.size() < sizeof kFileMagic) return start();
  may_refer_ = std::memcmp(text.data(), kFileMagic, sizeof kFileMagic) == 0;
  if (!may_refer_ && std::memcmp(text.data(), kFileMagic1, sizeof kFileMagic1) != 0)
    return Error(ErrorCode::kCorrupt, "File " + path_ + " is not a journal of this version");
  CKPT_TRY(at, read_frames(text, handler));
  end_ = at;
  capacity_ = text.size();
  const std::uint64_t last = text.find_last_not_of('\0') + 1;
  if (last <= at) return ok();
  for (std::uint64_t behind = at + 8; behind < last; behind += 8)
    if (frame_at(text, behind))
      return Error(ErrorCode::kCorrupt, "Journal " + path_ + " is damaged at byte " + std::to_string(at) +
                                            " with intact records after it: restore the file, or end its "
                                            "handovers with 'gpumigrate resolve'");
  torn_bytes_ = last - at;
  const std::vector<std::byte> zeroes(torn_bytes_);
  CKPT_TRYV(write_at(fd_.get(), zeroes, at, path_));
  return sync(fd_.get(), path_);
}

// Extends the file with zeroed and synced space to at least `wanted_end` bytes. On failure the file's length
// is unchanged.
Result<void> JournalFile::extend(std::uint64_t wanted_end) {
  if (wanted_end <= capacity_) return ok();
  const std::uint64_t next = (wanted_end + kStepBytes - 1) / kStepBytes * kStepBytes;
  if (next > kMaxBytes)
    return Error(ErrorCode::kRefused, "Journal " + path_ + " is at its limit of 256 MiB: compact it");
  const std::vector<std::byte> zeroes(next - capacity_);
  auto written = write_at(fd_.get(), zeroes, capacity_, path_);
  if (!written.has_value() && written.error().code() == ErrorCode::kRefused) return written;
  if (written.has_value()) written = sync(fd_.get(), path_);
  if (written.has_value()) {
    capacity_ = next;
    return ok();
  }
  if (::ftruncate(fd_.get(), static_cast<off_t>(capacity_)) != 0)
    return Error::from_errno("Cannot truncate the journal " + path_ + " back");
  return full(path_, std::move(written).error());
}

Result<void> JournalFile::reserve(std::uint64_t bytes) {
  return extend(end_ + bytes);
}

Result<JournalFile::Copy> JournalFile::copy() const {
  if (broken_) return Error(ErrorCode::kIo, "It is unknown whether a record of the journal was written");
  UniqueFd fd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!fd) return Error::from_errno("Cannot copy the journal's descriptor");
  return Copy{std::move(fd), end_};
}

Result<void> JournalFile::append(std::span<const std::byte> body, bool refers, Durability durability) {
  if (broken_)
    return Error(ErrorCode::kIo, "Journal " + path_ + " had a failed write earlier: restart the process");
  const auto frame = make_frame(body, frames_, refers);
  if (frame.size() > kMaxRecordBytes)
    return Error(ErrorCode::kRefused, "A record of " + std::to_string(frame.size()) + " bytes for " + path_);
  CKPT_TRYV(extend(end_ + frame.size()));
  auto written = write_at(fd_.get(), frame, end_, path_);
  if (!written.has_value() && written.error().code() == ErrorCode::kRefused) return written;
  if (written.has_value() && durability == Durability::kSynced) written = sync(fd_.get(), path_);
  if (!written.has_value()) {
    broken_ = true;
    return Error(ErrorCode::kIo,
                 "Journal " + path_ + ": it is unknown whether a record was written; restart the process")
        .caused_by(std::move(written).error());
  }
  end_ += frame.size();
  ++frames_;
  return ok();
}

Result<void> JournalFile::replace(const std::vector<Body>& bodies) {
  const std::string next_path = path_ + ".next";
  ::unlink(next_path.c_str());
  const auto nothing = [](std::span<const std::byte>, bool, std::uint64_t) { return ok(); };
  CKPT_TRY(next, open(next_path, nothing));
  // Writes all frames as one buffer. No reader opens this file before it is renamed, so one sync is enough.
  std::vector<std::byte> frames;
  for (const Body& body : bodies) {
    const auto frame = make_frame(body, next.frames_++);
    frames.insert(frames.end(), frame.begin(), frame.end());
  }
  CKPT_TRYV(next.extend(next.end_ + frames.size()));
  CKPT_TRYV(write_at(next.fd_.get(), frames, next.end_, next_path));
  next.end_ += frames.size();
  CKPT_TRYV(sync(next.fd_.get(), next_path));
  if (::rename(next_path.c_str(), path_.c_str()) != 0)
    return Error::from_errno("Cannot replace the journal " + path_);
  next.path_ = path_;
  *this = std::move(next);
  auto synced = sync_folder_of(path_);
  broken_ = !synced.has_value();
  return synced;
}

}  // namespace ckpt::migration
