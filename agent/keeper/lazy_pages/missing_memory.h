// SPDX-License-Identifier: Apache-2.0
// The missing memory of one process, as ranges with the locations of their bytes. The program may move,
// discard or unmap memory in the meantime, and the ranges are updated.
// Threads: plain values. Errors: none.
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

  // Adds a range. It replaces the ranges that were missing at its addresses.
  void add(const Piece& piece);
  void drop(std::uint64_t address, std::uint64_t bytes);
  // Handles mremap. Memory that was missing at `from` is now missing at `to`.
  void move(std::uint64_t from, std::uint64_t to, std::uint64_t bytes);

  [[nodiscard]] bool is_empty() const { return ranges_.empty(); }
  // Returns the part of the range that begins at `address`, with at most `limit` bytes.
  [[nodiscard]] std::optional<Piece> at(std::uint64_t address, std::uint64_t limit) const;
  // Returns the first range from `address` on, or else the first of all ranges. At least one range must
  // exist.
  [[nodiscard]] Piece next(std::uint64_t address, std::uint64_t limit) const;

 private:
  struct Range {
    std::uint64_t end = 0;
    const std::byte* from = nullptr;
  };
  void cut(std::uint64_t address);

  std::map<std::uint64_t, Range> ranges_;  // ranges by their begin; they do not overlap
};

}  // namespace ckpt::lazy_pages
