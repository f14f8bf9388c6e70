// SPDX-License-Identifier: Apache-2.0
// The allocation of pieces in slabs: best fit over all slabs of one heap, with free neighbors merged. It
// manages addresses only, no memory.
// Threads: no lock inside; the owner locks. Errors: none; the caller must return only pieces that it took.
// Units: bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace ckpt::shim {

class SlabHeap {
 public:
  static constexpr std::uint64_t kAlignment = 512;

  // Creates a heap. `slab_bytes` is a power of two; slabs are aligned to it.
  explicit SlabHeap(std::uint64_t slab_bytes = std::uint64_t{2} << 20) : slab_bytes_(slab_bytes) {}

  [[nodiscard]] static std::uint64_t rounded(std::uint64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  [[nodiscard]] std::uint64_t slab_of(std::uint64_t address) const { return address & ~(slab_bytes_ - 1); }
  [[nodiscard]] std::uint64_t slab_bytes() const { return slab_bytes_; }

  void add_slab(std::uint64_t base) { insert(base, slab_bytes_); }
  // Takes a piece and returns its address. `bytes` is a value of rounded(). Returns nullopt if no slab has
  // that many contiguous free bytes.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes);
  // Returns a piece to its slab. If the slab has no other taken piece, returns the slab's base. The slab
  // exists until remove_slab.
  std::optional<std::uint64_t> give(std::uint64_t address, std::uint64_t bytes);
  // Removes a slab in which no piece is taken.
  void remove_slab(std::uint64_t base) { erase(base, slab_bytes_); }

 private:
  void insert(std::uint64_t address, std::uint64_t bytes);
  void erase(std::uint64_t address, std::uint64_t bytes);

  std::uint64_t slab_bytes_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // the free pieces as (bytes, address), ordered
                                                               // by size
  std::map<std::uint64_t, std::uint64_t> by_address_;          // the bytes of the free pieces, by address
};

}  // namespace ckpt::shim
