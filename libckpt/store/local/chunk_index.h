// SPDX-License-Identifier: Apache-2.0
// The places of a job's records: a map from content name to place in a pack. It is an open hash table with 32
// bytes per entry, at most three quarters full. Names are keyed hashes, so their first bytes are evenly
// distributed. The table uses 43 to 86 bytes for each stored chunk, whatever the number of versions. One
// content may be in several places, if an interrupted collection copied it and did not remove the old copy.
//
// Threads: no lock inside; the owner's lock protects it. No function fails.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "libckpt/store/local/content.h"

namespace ckpt::checkpoint_store {

// The place of a record in a pack.
struct Place {
  std::uint64_t pack = 0;
  std::uint64_t offset = 0;
  std::uint32_t stored_bytes = 0;
  auto operator<=>(const Place&) const = default;
};

class ChunkIndex {
 public:
  // The limits of a place: pack < 2^28 and offset < 2^40, a multiple of 16.
  static constexpr std::uint64_t kMaxPacks = std::uint64_t{1} << 28;

  void add(const ContentId& id, RecordKind kind, const Place& place);
  // Calls `look` with each place of the content until `look` returns true. Returns whether `look` returned
  // true.
  template <class Look>
  bool find(const ContentId& id, RecordKind kind, Look&& look) const {
    if (slots_.empty()) return false;
    for (std::size_t i = id.prefix() & mask();; i = (i + 1) & mask()) {
      const Slot& slot = slots_[i];
      if (slot.where == 0) return false;
      if (slot.id == id && slot.kind == kind && look(slot.place())) return true;
    }
  }
  [[nodiscard]] bool contains(const ContentId& id, RecordKind kind) const {
    return find(id, kind, [](const Place&) { return true; });
  }
  // Clears the marks, which belong to the collector. mark() marks all places of a content.
  void clear_marks();
  void mark(const ContentId& id, RecordKind kind);
  // Calls `visit(id, kind, place, marked)` for each entry.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Slot& slot : slots_)
      if (slot.where != 0) visit(slot.id, slot.kind, slot.place(), slot.marked);
  }
  // Removes the places for which `gone` returns true.
  void remove_if(const std::function<bool(const Place&)>& gone);
  [[nodiscard]] std::size_t size() const noexcept { return used_; }

 private:
  struct Slot {
    ContentId id;
    std::uint64_t where = 0;  // the place, encoded as pack << 36 | offset / 16; 0 means free, since packs
                              // count from 1
    std::uint32_t stored_bytes = 0;
    RecordKind kind = RecordKind::kInvalid;
    bool marked = false;
    [[nodiscard]] Place place() const {
      return {where >> 36, (where & ((std::uint64_t{1} << 36) - 1)) * 16, stored_bytes};
    }
  };
  static_assert(sizeof(Slot) == 32);

  [[nodiscard]] std::size_t mask() const { return slots_.size() - 1; }
  void put(const Slot& slot);
  void rebuild(std::size_t slots, const std::function<bool(const Place&)>& gone);

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

}  // namespace ckpt::checkpoint_store
