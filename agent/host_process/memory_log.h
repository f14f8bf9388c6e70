// SPDX-License-Identifier: Apache-2.0
// Pages of processes in the order in which they were read. The pages are in one memory file that only grows.
// The file is a migration's growing host state, so it is sent as it fills.
// Threads: one writer at a time. Any thread may use filled(), at() and the file. Ownership: callers own the
// duplicates of the file. Errors: kOutOfMemory if the pages do not fit.
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
  // Creates a log of at most `limit` bytes. The first `expected` bytes get memory now, which takes
  // milliseconds (use offload()).
  static Result<std::unique_ptr<MemoryLog>> create(std::uint64_t limit, std::uint64_t expected);
  ~MemoryLog();
  MemoryLog(const MemoryLog&) = delete;
  MemoryLog& operator=(const MemoryLog&) = delete;

  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }
  [[nodiscard]] std::uint64_t expected() const noexcept { return expected_; }
  [[nodiscard]] std::uint64_t filled() const noexcept { return filled_.load(std::memory_order_acquire); }
  // Returns a duplicate of the log's file, which has `limit` bytes and cannot shrink.
  [[nodiscard]] Result<UniqueFd> duplicate_file() const;

  // Returns the space for `bytes` bytes after the filled part.
  [[nodiscard]] Result<std::span<std::byte>> reserve(std::uint64_t bytes);
  // Returns the bytes of the log at `offset`.
  [[nodiscard]] std::span<const std::byte> at(std::uint64_t offset, std::uint64_t bytes) const {
    return {memory_ + offset, bytes};
  }
  // Marks `bytes` bytes as filled that were written into the space from reserve(). Returns the offset at
  // which these bytes begin.
  std::uint64_t append(std::uint64_t bytes);

 private:
  MemoryLog(UniqueFd file, std::byte* memory, std::uint64_t limit, std::uint64_t expected)
      : file_(std::move(file)), memory_(memory), limit_(limit), expected_(expected) {}

  UniqueFd file_;
  std::byte* memory_;
  std::uint64_t limit_;
  std::uint64_t expected_;
  std::atomic<std::uint64_t> filled_{0};  // number of filled bytes; it only grows, and filled bytes do not
                                          // change
};

}  // namespace ckpt::agent::host
