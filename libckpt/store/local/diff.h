// SPDX-License-Identifier: Apache-2.0
// The differences between two versions of a job, by names of content alone. No chunk is read, and equal
// blocks of lists are skipped.
// Threads: any. Errors: kCorrupt if a list is damaged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/store/local/job_store.h"

namespace ckpt::checkpoint_store {

enum class Change { kSame, kChanged, kAdded, kRemoved };
[[nodiscard]] std::string_view to_string(Change change) noexcept;

struct ChunkRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

struct RegionDiff {
  std::uint32_t rank = 0;
  std::uint64_t id = 0;
  std::string name;
  Change change = Change::kSame;
  std::uint64_t bytes = 0;  // the size in the second version, or in the first one if it was removed
  std::uint64_t changed_chunks = 0;
  std::uint64_t changed_bytes = 0;
  std::vector<ChunkRange> ranges;  // the ranges of changed chunks, in order
};

struct BlobDiff {
  std::string name;
  Change change = Change::kSame;
  std::uint64_t bytes = 0;
  std::uint64_t changed_bytes = 0;
};

struct VersionDiff {
  std::vector<RegionDiff> regions;
  std::vector<BlobDiff> blobs;
  [[nodiscard]] std::uint64_t changed_bytes() const;
};

Result<VersionDiff> diff(JobStore& store, const Version& from, const Version& to);

}  // namespace ckpt::checkpoint_store
