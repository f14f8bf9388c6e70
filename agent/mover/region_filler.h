// SPDX-License-Identifier: Apache-2.0
// Copies regions on one GPU from one allocation into another, both given as descriptors. Compares them by
// fingerprints under a separate key. In this way, memory that a process created itself gets the content that
// a mover received for it (docs/design.md §13). The class holds memory only while fill() handles a region.
// Threads: one at a time. fill() blocks for two reads and a copy of the regions. Ownership: the Device
// outlives it. Errors: the driver's errors. kCorrupt if a region differs from its source.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/datapath/track/scanner.h"
#include "libckpt/protocol/wire/mover_values.h"

namespace ckpt::mover {

class RegionFiller {
 public:
  // Called after a region was copied and before it is compared. Tests use this hook.
  using CopiedHook = std::function<void(CUdeviceptr target, std::uint64_t bytes)>;

  static Result<std::unique_ptr<RegionFiller>> create(const Device& device, CopiedHook copied = {});
  ~RegionFiller();
  RegionFiller(const RegionFiller&) = delete;
  RegionFiller& operator=(const RegionFiller&) = delete;

  // Fills the regions. Each region has two descriptors: the memory with its content, and the memory to fill.
  // Returns the number of copied bytes.
  Result<std::uint64_t> fill(const std::vector<wire::mover::RegionInfo>& regions,
                             std::vector<UniqueFd> descriptors);

 private:
  RegionFiller(const Device& device, CopiedHook copied) : device_(device), copied_(std::move(copied)) {}
  Result<void> fill_one(const wire::mover::RegionInfo& region, int source, int target);
  Result<void> compare(std::uint64_t region, CUdeviceptr source, CUdeviceptr target, std::uint64_t bytes);

  const Device& device_;
  CopiedHook copied_;
  CUstream stream_ = nullptr;
  std::unique_ptr<track::Scanner> scanner_;
  std::vector<track::ChunkRange> ranges_;
  std::vector<track::Fingerprint> fingerprints_;
};

}  // namespace ckpt::mover
