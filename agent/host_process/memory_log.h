// SPDX-License-Identifier: Apache-2.0
// Pages of processes in the order in which they were read, in one memory file that only grows. It is a
// migration's growing host state, so it is sent as it fills.
// Threads: one writer at a time; filled(), at() and the file from any. Ownership: the file's duplicates are
// their callers'. Errors: kOutOfMemory where the pages do not fit.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

class MemoryLog {
 public:
  // `most`: how long it can become; `expected`: so much of it gets memory now, which takes milliseconds
  // (offload()).
  static Result<std::unique_ptr<MemoryLog>> create(std::uint64_t most, std::uint64_t expected);
  ~MemoryLog();
  MemoryLog(const MemoryLog&) = delete;
  MemoryLog& operator=(const MemoryLog&) = delete;

  [[nodiscard]] std::uint64_t most() const noexcept { return most_; }
  [[nodiscard]] std::uint64_t expected() const noexcept { return expected_; }
  [[nodiscard]] std::uint64_t filled() const noexcept { return filled_.load(std::memory_order_acquire); }
  // A duplicate of the log's file, which has `most` bytes and cannot shrink.
  [[nodiscard]] Result<UniqueFd> duplicate_file() const;

  // Returns the place for so many bytes behind the filled ones.
  [[nodiscard]] Result<std::span<std::byte>> room(std::uint64_t bytes);
  // Returns the bytes of the log at that place.
  [[nodiscard]] std::span<const std::byte> at(std::uint64_t offset, std::uint64_t bytes) const {
    return {memory_ + offset, bytes};
  }
  // Counts the bytes as filled that were written into that place. Returns where they begin.
  std::uint64_t append(std::uint64_t bytes);

 private:
  MemoryLog(UniqueFd file, std::byte* memory, std::uint64_t most, std::uint64_t expected)
      : file_(std::move(file)), memory_(memory), most_(most), expected_(expected) {}

  UniqueFd file_;
  std::byte* memory_;
  std::uint64_t most_;
  std::uint64_t expected_;
  std::atomic<std::uint64_t> filled_{0};  // only grows; what is below it does not change
};

}  // namespace ckpt::agent::host
