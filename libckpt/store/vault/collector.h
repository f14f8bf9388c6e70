// SPDX-License-Identifier: Apache-2.0
// Gives back the space of what no version uses any more. Packs without anything live are removed. While more
// than a share of what is left is dead, the packs with the fewest live bytes are rewritten. Their live
// records go into a new pack, which is on the disk before they are removed. Small packs, one for each
// snapshot, are put together when they become many.
//
// Cut at any point nothing is lost: records are only ever removed after a copy of them, or their last
// version, is durably so.
// Threads: one collection of a job at a time, and none while a version of it is written (kRefused). Errors:
// kIo and others: some space may have come back already.
#pragma once

#include <cstdint>
#include <memory>

#include "libckpt/base/result.h"
#include "libckpt/store/vault/job_store.h"

namespace ckpt::vault {

struct CollectOptions {
  double max_dead_share = 0.3;  // of the bytes in packs
  std::uint64_t small_pack_bytes = 16 << 20;
  std::size_t max_small_packs = 64;
  std::uint64_t max_pack_bytes = std::uint64_t{256} << 20;
};

struct CollectReport {
  std::int64_t freed_bytes = 0;       // of packs that are gone, less what was written again
  std::uint64_t rewritten_bytes = 0;  // live records copied
  std::uint64_t packs_removed = 0;
  std::uint64_t packs_written = 0;
  std::uint64_t live_bytes = 0;  // in packs
  std::uint64_t dead_bytes = 0;  // that are left
};

Result<CollectReport> collect(const std::shared_ptr<JobStore>& store, const CollectOptions& options);

}  // namespace ckpt::vault
