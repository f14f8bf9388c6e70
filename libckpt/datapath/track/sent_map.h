// SPDX-License-Identifier: Apache-2.0
// The target's content: a fingerprint for each region (id, generation) and chunk. The TARGET computed it
// from its own device memory after writing; it is taken from its acknowledgement (ENG-1). Never enter a
// fingerprint of a scan of the source. A chunk may change between scan and copy and change back, and the
// target would keep the middle version.
//
//   CKPT_TRYV(map.add_region(7, 1, bytes));
//   CKPT_TRYV(map.diff(7, 1, scanned, 0, dirty));             // chunks whose bytes the target does not hold
//   CKPT_TRYV(map.forget(7, 1, chunk));                       // a message leaves: unknown until its answer
//   CKPT_TRYV(map.acknowledge(7, 1, chunk, from_target));     // the answer
//   CKPT_TRY(root, map.root());                               // the switch is verified if both sides' are equal
//
// Threads: none inside; one owner, or the caller's lock. Errors: kNotFound for an unknown (region,
// generation): the region was freed meanwhile, drop the message; kInvalidArgument for a chunk index or count
// beyond the region.
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
  // root_params: expanded with FingerprintPurpose::kRoot. chunk_bytes: a power of two.
  SentMap(std::shared_ptr<const FingerprintParams> root_params, std::uint64_t chunk_bytes);

  // A region enters with no chunk acknowledged. A region id that is already there with an older generation is
  // replaced; with the same or a newer one the call is refused (kInvalidArgument).
  Result<void> add_region(std::uint64_t region, std::uint64_t generation, std::uint64_t bytes);
  // False if (region, generation) is not there.
  bool drop_region(std::uint64_t region, std::uint64_t generation);

  Result<void> acknowledge(std::uint64_t region, std::uint64_t generation, std::uint32_t chunk,
                           const Fingerprint& from_target);
  Result<void> forget(std::uint64_t region, std::uint64_t generation, std::uint32_t chunk);

  // Appends to `dirty` the index of each chunk in [first_chunk, first_chunk + scanned.size()) that the target
  // is not known to hold in this version.
  Result<void> diff(std::uint64_t region, std::uint64_t generation, std::span<const Fingerprint> scanned,
                    std::uint32_t first_chunk, std::vector<std::uint32_t>& dirty) const;

  [[nodiscard]] std::optional<Fingerprint> find(std::uint64_t region, std::uint64_t generation,
                                                std::uint32_t chunk) const;
  [[nodiscard]] std::uint64_t missing() const noexcept {
    return missing_;
  }  // chunks without an acknowledged version
  [[nodiscard]] std::uint64_t chunk_count() const noexcept { return chunk_count_; }
  [[nodiscard]] std::uint64_t chunk_bytes() const noexcept { return chunk_bytes_; }

  // One fingerprint over a message of whole blocks: chunk size, count of regions and, in order of region id,
  // (id, generation, bytes); then each region's fingerprints, in the same order, filled up with zeroes to a
  // block. kRefused while a chunk is missing: an incomplete table equals nothing. Only blocks with an entry
  // that changed are read again: at the switch, where the root is on the critical path, most have been by
  // refresh_root().
  Result<Fingerprint> root() const;
  // Does ahead what root() has to do for the entries so far.
  void refresh_root() const;

 private:
  struct BlockHash {  // z of both lanes, for a block of the root's message
    std::uint64_t z[2] = {0, 0};
    bool stale = true;
  };
  struct Region {
    std::uint64_t generation = 0;
    std::uint64_t bytes = 0;
    std::vector<Fingerprint> fingerprints;
    std::vector<bool> known;
    mutable std::vector<BlockHash> blocks;  // of fingerprints
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
