// SPDX-License-Identifier: Apache-2.0
// The missing memory of one process: ranges of it, and where their bytes are. The program may move, discard
// or unmap memory meanwhile, so ranges follow it.
// Threads: values. Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace ckpt::lazy_pages {

class MissingMemory {
 public:
  struct Piece {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    const std::byte* from = nullptr;
  };

  // Replaces the ranges that were missing there.
  void add(const Piece& piece);
  void drop(std::uint64_t address, std::uint64_t bytes);
  // Handles mremap: memory that was missing at `from` is missing at `to`.
  void move(std::uint64_t from, std::uint64_t to, std::uint64_t bytes);

  [[nodiscard]] bool is_empty() const { return ranges_.empty(); }
  // Returns the range that has `address`, from there on, at most `most` bytes.
  [[nodiscard]] std::optional<Piece> at(std::uint64_t address, std::uint64_t most) const;
  // Returns the first range from `address` on, else the first of all. There must be one.
  [[nodiscard]] Piece next(std::uint64_t address, std::uint64_t most) const;

 private:
  struct Range {
    std::uint64_t end = 0;
    const std::byte* from = nullptr;
  };
  void cut(std::uint64_t address);

  std::map<std::uint64_t, Range> ranges_;  // by begin; none overlap
};

}  // namespace ckpt::lazy_pages
