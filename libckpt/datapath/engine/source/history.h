// SPDX-License-Identifier: Apache-2.0
// The source's record of the chunks that the target has, so that the source need not send all of them again.
// The record has the marks of their blocks (4 bytes for each 4 KiB of state). Within the limit of
// --shadow-memory, the record also has whole chunks for differences. These are hints only: a chunk that is
// rebuilt from them is checked by its fingerprint (ENG-1). A chunk that was wrong is forgotten here and sent
// raw.
//
// Threads: a chunk is in progress once at a time (ENG-2). The thread that handles the chunk (a coding thread,
// then its lane) owns its record here. Different chunks are independent. Nothing is locked, and nothing is
// allocated after create(). Only ShadowStore::create can fail (kOutOfMemory). Sizes are bytes.
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
  // Creates a history that remembers nothing.
  ChunkHistory() = default;
  ChunkHistory(std::uint64_t bytes, std::uint64_t chunk_bytes, bool with_marks, bool with_shadows);

  // Returns the marks of the target's version of the chunk. Returns an empty span if they are not known.
  [[nodiscard]] std::span<const std::uint32_t> marks(std::uint32_t chunk) const noexcept;
  // Notes that the target has acknowledged a version with these marks.
  void hold(std::uint32_t chunk, std::span<const std::uint32_t> marks) noexcept;
  void forget(std::uint32_t chunk) noexcept;
  [[nodiscard]] bool has_marks() const noexcept { return !known_.empty(); }

 private:
  friend class ShadowStore;
  std::uint64_t chunk_marks_ = 0;  // the number of marks of a whole chunk
  std::vector<std::uint32_t> marks_;
  std::vector<std::uint8_t> known_;
  std::vector<std::atomic<std::uint32_t>> shadows_;  // each chunk's place in the store
};

// A store of whole chunks, as they were sent last. A full store reuses a place only if its chunk was not sent
// in the last rounds. If everything changes in every round, a part of the chunks stays, instead of each
// evicting the next.
class ShadowStore {
 public:
  // Creates a store. Reserves address space now, and uses memory only on first access.
  static Result<std::unique_ptr<ShadowStore>> create(std::uint64_t bytes, std::uint64_t chunk_bytes);
  ~ShadowStore();
  ShadowStore(const ShadowStore&) = delete;
  ShadowStore& operator=(const ShadowStore&) = delete;

  // Returns the version of the chunk that was sent last. Returns an empty span if there is none. The span is
  // valid until store() or forget() of the same chunk, as long as `round` is the running round.
  [[nodiscard]] std::span<const std::byte> find(ChunkHistory& history, std::uint32_t chunk,
                                                std::size_t length, std::uint32_t round) noexcept;
  // Stores the version that is sent now. Does nothing if there is no place.
  void store(ChunkHistory& history, std::uint32_t chunk, std::span<const std::byte> version,
             std::uint32_t round) noexcept;
  static void forget(ChunkHistory& history, std::uint32_t chunk) noexcept;

 private:
  struct Place {
    std::atomic<bool> busy{false};  // whether a thread is deciding about this place
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
