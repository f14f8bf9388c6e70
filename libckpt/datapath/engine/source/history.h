// SPDX-License-Identifier: Apache-2.0
// The source's record of the chunks that the target holds, so that it need not send all of them again. These
// are the marks of their blocks (4 bytes for each 4 KiB of state). Within --shadow-memory they are also whole
// chunks for differences. Hints only: a chunk that is rebuilt from them is judged by its fingerprint (ENG-1).
// A chunk that was wrong is forgotten here and sent raw.
//
// Threads: a chunk is under way once at a time (ENG-2). The thread that handles it (a coding thread, then its
// lane) owns its record here. Different chunks are independent. Nothing is locked, nothing is allocated after
// create(). No function fails but ShadowStore::create (kOutOfMemory). Sizes are bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::engine {

inline constexpr std::uint32_t kNoShadow = ~std::uint32_t{0};

// The history of one region's chunks.
class ChunkHistory {
 public:
  // Remembers nothing.
  ChunkHistory() = default;
  ChunkHistory(std::uint64_t bytes, std::uint64_t chunk_bytes, bool with_marks, bool with_shadows);

  // The marks of the chunk as the target holds it; empty: not known.
  [[nodiscard]] std::span<const std::uint32_t> marks(std::uint32_t chunk) const noexcept;
  // The target has acknowledged a version with these marks.
  void hold(std::uint32_t chunk, std::span<const std::uint32_t> marks) noexcept;
  void forget(std::uint32_t chunk) noexcept;
  [[nodiscard]] bool has_marks() const noexcept { return !known_.empty(); }

 private:
  friend class ShadowStore;
  std::uint64_t chunk_marks_ = 0;  // of a whole chunk
  std::vector<std::uint32_t> marks_;
  std::vector<std::uint8_t> known_;
  std::vector<std::atomic<std::uint32_t>> shadows_;  // place in the store
};

// Whole chunks, as they were sent last. A full store gives a place to another chunk only if the one in it was
// not sent in the last rounds: where everything changes in every round a part of it stays, instead of each
// pushing out the next.
class ShadowStore {
 public:
  // Address space now, memory when it is first used.
  static Result<std::unique_ptr<ShadowStore>> create(std::uint64_t bytes, std::uint64_t chunk_bytes);
  ~ShadowStore();
  ShadowStore(const ShadowStore&) = delete;
  ShadowStore& operator=(const ShadowStore&) = delete;

  // The version of the chunk that left last; empty: none. Stays until store() or forget() of the same chunk,
  // as long as `round` is the running one.
  [[nodiscard]] std::span<const std::byte> find(ChunkHistory& history, std::uint32_t chunk,
                                                std::size_t length, std::uint32_t round) noexcept;
  // This version leaves now. Does nothing if there is no place.
  void store(ChunkHistory& history, std::uint32_t chunk, std::span<const std::byte> version,
             std::uint32_t round) noexcept;
  static void forget(ChunkHistory& history, std::uint32_t chunk) noexcept;

 private:
  struct Place {
    std::atomic<bool> taken{false};  // a thread decides about this place
    ChunkHistory* owner = nullptr;
    std::uint32_t chunk = 0;
    std::uint32_t used_round = 0;
  };
  ShadowStore(std::byte* memory, std::size_t places, std::uint64_t chunk_bytes);
  [[nodiscard]] bool is_of(const Place& place, std::uint32_t index, const ChunkHistory& history,
                           std::uint32_t chunk) const noexcept;
  std::uint32_t claim(ChunkHistory& history, std::uint32_t chunk, std::uint32_t round) noexcept;

  std::byte* memory_;
  std::uint64_t chunk_bytes_;
  std::vector<Place> places_;
  std::atomic<std::size_t> hand_{0};
};

}  // namespace ckpt::engine
