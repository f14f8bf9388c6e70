// SPDX-License-Identifier: Apache-2.0
// Copies regions on one GPU from one allocation into another, both given as descriptors, and compares them by
// fingerprints under a key of its own. So memory that a process made itself gets the content that a mover
// received for it (docs/design.md §13). Nothing is held but while fill() is at a region.
// Threads: one at a time; fill() blocks for two reads and a copy of the regions. Ownership: the Device
// outlives it. Errors: the driver's; kCorrupt: a region differs from its source.
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
  // Called when a region is copied and not yet compared; for tests.
  using CopiedHook = std::function<void(CUdeviceptr target, std::uint64_t bytes)>;

  static Result<std::unique_ptr<RegionFiller>> create(const Device& device, CopiedHook copied = {});
  ~RegionFiller();
  RegionFiller(const RegionFiller&) = delete;
  RegionFiller& operator=(const RegionFiller&) = delete;

  // Two descriptors for each region: the memory with its content, and the memory to fill. Returns the bytes
  // copied.
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
