// SPDX-License-Identifier: Apache-2.0
// Frees the space of content that no version uses any more. Packs without live records are removed. While
// more than a given share of the rest is dead, the packs with the fewest live bytes are rewritten. Their live
// records go into a new pack, which is on the disk before the old packs are removed. Small packs, one for
// each snapshot, are merged when there are many.
//
// An interruption at any point loses nothing. A record is removed only after a copy of it, or the removal of
// its last version, is durable.
// Threads: one collection of a job at a time, and none while a version of the job is written (kRefused).
// Errors: kIo and others: some space may already be free.
#pragma once

#include <cstdint>
#include <memory>

#include "libckpt/base/result.h"
#include "libckpt/store/local/job_store.h"

namespace ckpt::checkpoint_store {

struct CollectOptions {
  double max_dead_share = 0.3;  // the maximum share of dead bytes in packs
  std::uint64_t small_pack_bytes = 16 << 20;
  std::size_t max_small_packs = 64;
  std::uint64_t max_pack_bytes = std::uint64_t{256} << 20;
};

struct CollectReport {
  std::int64_t freed_bytes = 0;       // the bytes of removed packs, minus the bytes written again
  std::uint64_t rewritten_bytes = 0;  // the bytes of the copied live records
  std::uint64_t packs_removed = 0;
  std::uint64_t packs_written = 0;
  std::uint64_t live_bytes = 0;  // the live bytes in packs
  std::uint64_t dead_bytes = 0;  // the dead bytes that remain in packs
};

Result<CollectReport> collect(const std::shared_ptr<JobStore>& store, const CollectOptions& options);

}  // namespace ckpt::checkpoint_store
