// SPDX-License-Identifier: Apache-2.0
// The target's content: a fingerprint for each region (id, generation) and chunk. The TARGET computed it from
// its own device memory after writing, and its acknowledgement contains it (ENG-1). Never store a fingerprint
// of a scan of the source. A chunk may change between scan and copy and change back, and the target would
// keep the middle version.
//
//   CKPT_TRYV(map.add_region(7, 1, bytes));
//   CKPT_TRYV(map.diff(7, 1, scanned, 0, dirty));             // chunks whose bytes the target does not hold
//   CKPT_TRYV(map.forget(7, 1, chunk));                       // a message leaves: unknown until its answer
//   CKPT_TRYV(map.acknowledge(7, 1, chunk, from_target));     // the answer
//   CKPT_TRY(root, map.root());                               // the switch is verified if both sides' are equal
//
// Threads: no lock inside; one owner, or the caller's lock. Errors: kNotFound for an unknown (region,
// generation): the region was freed meanwhile, so drop the message. kInvalidArgument for a chunk index or
// count beyond the region.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/datapath/track/fingerprint.h"

namespace ckpt::track {

class SentMap {
 public:
  // Creates an empty map. `root_params` are expanded with FingerprintPurpose::kRoot. `chunk_bytes` is a power
  // of two.
  SentMap(std::shared_ptr<const FingerprintParams> root_params, std::uint64_t chunk_bytes);

  // Adds a region without acknowledged chunks. An existing region of the same id with an older generation is
  // replaced. With the same or a newer generation, the call is refused (kInvalidArgument).
  Result<void> add_region(std::uint64_t region, std::uint64_t generation, std::uint64_t bytes);
  // Drops a region. Returns false if (region, generation) does not exist.
  bool drop_region(std::uint64_t region, std::uint64_t generation);

  Result<void> acknowledge(std::uint64_t region, std::uint64_t generation, std::uint32_t chunk,
                           const Fingerprint& from_target);
  Result<void> forget(std::uint64_t region, std::uint64_t generation, std::uint32_t chunk);

  // Appends to `dirty` the index of each chunk in [first_chunk, first_chunk + scanned.size()) that the target
  // is not known to have in this version.
  Result<void> diff(std::uint64_t region, std::uint64_t generation, std::span<const Fingerprint> scanned,
                    std::uint32_t first_chunk, std::vector<std::uint32_t>& dirty) const;

  [[nodiscard]] std::optional<Fingerprint> find(std::uint64_t region, std::uint64_t generation,
                                                std::uint32_t chunk) const;
  [[nodiscard]] std::uint64_t missing() const noexcept {
    return missing_;
  }  // the number of chunks without an acknowledged version
  [[nodiscard]] std::uint64_t chunk_count() const noexcept { return chunk_count_; }
  [[nodiscard]] std::uint64_t chunk_bytes() const noexcept { return chunk_bytes_; }

  // Returns one fingerprint over a message of whole blocks. The message is chunk size, count of regions and,
  // in order of region id, (id, generation, bytes). Each region's fingerprints follow, in the same order,
  // filled up with zeros to a block. Returns kRefused while a chunk is missing: an incomplete table equals
  // nothing. Only blocks with a changed entry are read again. At the handover, where the root is on the
  // critical path, refresh_root() has already read most of them.
  Result<Fingerprint> root() const;
  // Does the work of root() for the current entries ahead of time.
  void refresh_root() const;

 private:
  struct BlockHash {  // the z of both lanes, for a block of the root's message
    std::uint64_t z[2] = {0, 0};
    bool stale = true;
  };
  struct Region {
    std::uint64_t generation = 0;
    std::uint64_t bytes = 0;
    std::vector<Fingerprint> fingerprints;
    std::vector<bool> known;
    mutable std::vector<BlockHash> blocks;  // the hashes of the blocks of fingerprints
  };
  Result<const Region*> find_region(std::uint64_t region, std::uint64_t generation) const;
  Result<Region*> find_chunk(std::uint64_t region, std::uint64_t generation, std::uint32_t chunk);
  [[nodiscard]] BlockHash hash(std::span<const std::byte> up_to_a_block) const;
  void refresh(const Region& region) const;

  std::shared_ptr<const FingerprintParams> root_params_;
  std::uint64_t chunk_bytes_;
  std::uint64_t missing_ = 0;
  std::uint64_t chunk_count_ = 0;
  std::map<std::uint64_t, Region> regions_;
};

}  // namespace ckpt::track
