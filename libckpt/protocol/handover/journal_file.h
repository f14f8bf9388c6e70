// SPDX-License-Identifier: Apache-2.0
// The file of a journal: framed bodies, each durable (fdatasync) before append() returns.
//
// The file is extended ahead of use, in zeroed and synced steps. An append during the pause is therefore one
// overwrite and one fdatasync without metadata. A full disk is detected at reserve(), before a migration
// changes anything. A torn last frame is cut off when the file is opened, because its append never returned.
// A damaged frame with intact frames after it is kCorrupt: nothing is guessed.
//
// Threads: one at a time. Ownership: holds the file with a lock (flock); a second opener gets kRefused.
// Errors: append and reserve fail cleanly with kRefused (no space, size limit) and write nothing. kIo means
// that the state of the frame is unknown: the process must exit, and read its journal again after a restart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::migration {

class JournalFile {
 public:
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{256}
                                             << 20;  // the maximum size of the file, beyond which append
                                                     // refuses
  using Body = std::vector<std::byte>;
  // Receives an intact frame at byte `at`. open() returns the handler's error.
  using FrameHandler =
      std::function<Result<void>(std::span<const std::byte> body, bool refers, std::uint64_t at)>;

  // Opens or creates the file (mode 0600) and passes its frames to `handler`, oldest first.
  static Result<JournalFile> open(const std::string& path, const FrameHandler& handler);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // Returns the number of bytes that open() cut off.
  [[nodiscard]] std::uint64_t torn_bytes() const noexcept { return torn_bytes_; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return end_; }
  // Returns whether the file's version allows frames that refer to earlier frames.
  [[nodiscard]] bool may_refer() const noexcept { return may_refer_; }

  // The file in its current state. Its first `bytes` bytes remain complete frames after later appends and
  // replacements.
  struct Copy {
    UniqueFd fd;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] Result<Copy> copy() const;

  // The durability of an append. kWritten survives the process but not a power failure. It is for records
  // about state that does not survive a power failure either.
  enum class Durability : std::uint8_t { kSynced, kWritten };
  Result<void> append(std::span<const std::byte> body, bool refers, Durability durability);
  // Reserves disk space for `bytes` more bytes.
  Result<void> reserve(std::uint64_t bytes);
  // Replaces the contents with these complete bodies, by a rename.
  Result<void> replace(const std::vector<Body>& bodies);

 private:
  JournalFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Result<void> load(const FrameHandler& handler);
  Result<void> start();
  // Reads the frames and returns the end of the last one. The header has already been checked.
  Result<std::uint64_t> read_frames(const std::string& text, const FrameHandler& handler);
  Result<void> extend(std::uint64_t wanted_end);

  std::string path_;
  UniqueFd fd_;
  std::uint32_t frames_ = 0;
  bool may_refer_ = true;
  std::uint64_t end_ = 0;       // the end of the last frame
  std::uint64_t capacity_ = 0;  // the end of the zeroed and synced part
  std::uint64_t torn_bytes_ = 0;
  bool broken_ = false;  // whether an append failed with an unknown result
};

}  // namespace ckpt::migration
