// SPDX-License-Identifier: Apache-2.0
// The file of a journal: framed bodies, each durable (fdatasync) before append() returns.
//
// The file is extended ahead in zeroed, synced steps, so an append in the pause is one overwrite and one
// fdatasync without metadata. A full disk shows at reserve(), before a migration touches anything. A torn
// last frame (its append never returned) is cut off when the file is opened. A damaged frame with intact
// ones behind it is kCorrupt: nothing is guessed.
//
// Threads: one at a time. Ownership: holds the file, locked (flock): a second opener gets kRefused. Errors:
// append and reserve fail cleanly with kRefused (no space, size limit), nothing written. kIo means that the
// frame's fate is unknown: the process must end and read its journal again.
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
                                             << 20;  // of the file; beyond it append refuses
  using Body = std::vector<std::byte>;
  // An intact frame at byte `at`. An error of it is open()'s.
  using Take = std::function<Result<void>(std::span<const std::byte> body, bool refers, std::uint64_t at)>;

  // Opens or makes the file (mode 0600), and hands out what it holds, oldest first.
  static Result<JournalFile> open(const std::string& path, const Take& take);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t torn_bytes() const noexcept { return torn_bytes_; }  // cut off at open
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return end_; }
  // By the file's version: frames that refer to earlier ones may be appended.
  [[nodiscard]] bool may_refer() const noexcept { return may_refer_; }

  // The file as it is now: its first `bytes` bytes are whole frames, whatever is appended or replaced later.
  struct Copy {
    UniqueFd fd;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] Result<Copy> copy() const;

  // kWritten survives the process, but no power cut: for records of what does not survive that either.
  enum class Durability : std::uint8_t { kSynced, kWritten };
  Result<void> append(std::span<const std::byte> body, bool refers, Durability durability);
  // Space for `bytes` more is on the disk.
  Result<void> reserve(std::uint64_t bytes);
  // Holds these whole bodies and nothing else, renamed into place.
  Result<void> replace(const std::vector<Body>& bodies);

 private:
  JournalFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Result<void> load(const Take& take);
  Result<void> start();
  // Returns where they end. The header has been checked.
  Result<std::uint64_t> read_frames(const std::string& text, const Take& take);
  Result<void> extend(std::uint64_t wanted_end);

  std::string path_;
  UniqueFd fd_;
  std::uint32_t frames_ = 0;
  bool may_refer_ = true;
  std::uint64_t end_ = 0;       // behind the last frame
  std::uint64_t capacity_ = 0;  // zeroed and synced up to here
  std::uint64_t torn_bytes_ = 0;
  bool broken_ = false;  // an append with unknown fate
};

}  // namespace ckpt::migration
