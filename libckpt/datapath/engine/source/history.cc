// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/source/history.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "libckpt/datapath/engine/shared/region.h"
#include "libckpt/datapath/track/fingerprint.h"

namespace ckpt::engine {
namespace {

constexpr std::size_t kLooks = 8;         // the number of places that are checked for one that can be reused
constexpr std::uint32_t kIdleRounds = 2;  // a chunk that was not sent for this many rounds is cold

}  // namespace

ChunkHistory::ChunkHistory(std::uint64_t bytes, std::uint64_t chunk_bytes, bool with_marks, bool with_shadows)
    : chunk_marks_(track::mark_count(chunk_bytes)),
      marks_(with_marks ? track::mark_count(bytes) : 0),
      known_(with_marks ? chunk_count(bytes, chunk_bytes) : 0),
      shadows_(with_shadows ? chunk_count(bytes, chunk_bytes) : 0) {
  for (auto& shadow : shadows_) shadow.store(kNoShadow, std::memory_order_relaxed);
}

std::span<const std::uint32_t> ChunkHistory::marks(std::uint32_t chunk) const noexcept {
  if (chunk >= known_.size() || known_[chunk] == 0) return {};
  const std::size_t first = chunk * chunk_marks_;
  return std::span(marks_).subspan(first, std::min<std::size_t>(chunk_marks_, marks_.size() - first));
}

void ChunkHistory::hold(std::uint32_t chunk, std::span<const std::uint32_t> marks) noexcept {
  if (chunk >= known_.size()) return;
  std::copy(marks.begin(), marks.end(), marks_.begin() + static_cast<std::ptrdiff_t>(chunk * chunk_marks_));
  known_[chunk] = 1;
}

void ChunkHistory::forget(std::uint32_t chunk) noexcept {
  if (chunk < known_.size()) known_[chunk] = 0;
}

Result<std::unique_ptr<ShadowStore>> ShadowStore::create(std::uint64_t bytes, std::uint64_t chunk_bytes) {
  const std::size_t places = bytes / chunk_bytes;
  if (places == 0 || places >= kNoShadow)
    return Error(ErrorCode::kInvalidArgument, "Shadow memory of " + std::to_string(bytes) +
                                                  " bytes for chunks of " + std::to_string(chunk_bytes));
  void* memory = ::mmap(nullptr, places * chunk_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return Error(ErrorCode::kOutOfMemory, "There is no address space for shadow memory of " +
                                              std::to_string(bytes) +
                                              " bytes. Use a smaller --shadow-memory");
  ::madvise(memory, places * chunk_bytes, MADV_HUGEPAGE);
  return std::unique_ptr<ShadowStore>(new ShadowStore(static_cast<std::byte*>(memory), places, chunk_bytes));
}

ShadowStore::ShadowStore(std::byte* memory, std::size_t places, std::uint64_t chunk_bytes)
    : memory_(memory), chunk_bytes_(chunk_bytes), places_(places) {}

ShadowStore::~ShadowStore() {
  ::munmap(memory_, places_.size() * chunk_bytes_);
}

bool ShadowStore::is_of(const Place& place, std::uint32_t index, const ChunkHistory& history,
                        std::uint32_t chunk) const noexcept {
  return place.owner == &history && place.chunk == chunk &&
         history.shadows_[chunk].load(std::memory_order_acquire) == index;
}

std::span<const std::byte> ShadowStore::find(ChunkHistory& history, std::uint32_t chunk, std::size_t length,
                                             std::uint32_t round) noexcept {
  if (chunk >= history.shadows_.size()) return {};
  const std::uint32_t index = history.shadows_[chunk].load(std::memory_order_relaxed);
  if (index == kNoShadow) return {};
  Place& place = places_[index];
  // If the place is busy, it is being given to another chunk.
  if (place.busy.exchange(true, std::memory_order_acquire)) return {};
  const bool mine = is_of(place, index, history, chunk);
  if (mine) place.used_round = round;
  place.busy.store(false, std::memory_order_release);
  if (!mine) return {};
  return {memory_ + index * chunk_bytes_, length};
}

// Returns a place for this chunk: its own place, or the place of a cold chunk. Returns kNoShadow if there is
// none.
std::uint32_t ShadowStore::claim(ChunkHistory& history, std::uint32_t chunk, std::uint32_t round) noexcept {
  for (std::size_t probe = 0; probe < kLooks; ++probe) {
    const auto index =
        static_cast<std::uint32_t>(hand_.fetch_add(1, std::memory_order_relaxed) % places_.size());
    Place& place = places_[index];
    if (place.busy.exchange(true, std::memory_order_acquire)) continue;
    const bool cold = place.owner == nullptr || place.used_round + kIdleRounds < round ||
                      !is_of(place, index, *place.owner, place.chunk);
    if (cold) {
      if (place.owner != nullptr) {
        std::uint32_t expected = index;
        place.owner->shadows_[place.chunk].compare_exchange_strong(expected, kNoShadow);
      }
      place.owner = &history;
      place.chunk = chunk;
      place.used_round = round;
      history.shadows_[chunk].store(index, std::memory_order_relaxed);
    }
    place.busy.store(false, std::memory_order_release);
    if (cold) return index;
  }
  return kNoShadow;
}

void ShadowStore::store(ChunkHistory& history, std::uint32_t chunk, std::span<const std::byte> version,
                        std::uint32_t round) noexcept {
  if (chunk >= history.shadows_.size()) return;
  std::uint32_t index = kNoShadow;
  const std::span<const std::byte> present = find(history, chunk, version.size(), round);
  if (!present.empty())
    index = static_cast<std::uint32_t>(static_cast<std::size_t>(present.data() - memory_) / chunk_bytes_);
  else
    index = claim(history, chunk, round);
  if (index != kNoShadow) std::memcpy(memory_ + index * chunk_bytes_, version.data(), version.size());
}

void ShadowStore::forget(ChunkHistory& history, std::uint32_t chunk) noexcept {
  if (chunk < history.shadows_.size())
    // The chunk's place may now be given to another chunk.
    history.shadows_[chunk].store(kNoShadow, std::memory_order_release);
}

}  // namespace ckpt::engine
