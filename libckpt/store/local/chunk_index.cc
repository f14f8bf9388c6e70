// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/local/chunk_index.h"

#include <utility>

namespace ckpt::checkpoint_store {
namespace {

constexpr std::size_t kFirstSlots = 64;

}  // namespace

void ChunkIndex::add(const ContentId& id, RecordKind kind, const Place& place) {
  if (slots_.empty()) slots_.resize(kFirstSlots);
  if ((used_ + 1) * 4 > slots_.size() * 3) rebuild(slots_.size() * 2, {});
  Slot slot;
  slot.id = id;
  slot.where = place.pack << 36 | place.offset / 16;
  slot.stored_bytes = place.stored_bytes;
  slot.kind = kind;
  put(slot);
}

void ChunkIndex::put(const Slot& slot) {
  std::size_t i = slot.id.prefix() & mask();
  while (slots_[i].where != 0) i = (i + 1) & mask();
  slots_[i] = slot;
  used_++;
}

void ChunkIndex::rebuild(std::size_t slots, const std::function<bool(const Place&)>& gone) {
  std::vector<Slot> old(slots);
  std::swap(old, slots_);
  used_ = 0;
  for (const Slot& slot : old)
    if (slot.where != 0 && !(gone && gone(slot.place()))) put(slot);
}

void ChunkIndex::remove_if(const std::function<bool(const Place&)>& gone) {
  if (!slots_.empty()) rebuild(slots_.size(), gone);
}

void ChunkIndex::clear_marks() {
  for (Slot& slot : slots_) slot.marked = false;
}

void ChunkIndex::mark(const ContentId& id, RecordKind kind) {
  if (slots_.empty()) return;
  for (std::size_t i = id.prefix() & mask(); slots_[i].where != 0; i = (i + 1) & mask())
    if (slots_[i].id == id && slots_[i].kind == kind) slots_[i].marked = true;
}

}  // namespace ckpt::checkpoint_store
