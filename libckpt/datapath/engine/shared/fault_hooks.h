// SPDX-License-Identifier: Apache-2.0
// Where tests reach into the data path, given at construction; nullptr in production. Each hook is called on
// a lane's or a coding thread, several at a time for different chunks. The device's context is current where
// device memory is named.
#pragma once

#include <cstddef>
#include <span>

#include "libckpt/datapath/engine/shared/region.h"

namespace ckpt::engine {

class FaultHooks {
 public:
  virtual ~FaultHooks() = default;
  // Source: about to copy this chunk from the device (the scan has already seen it).
  virtual void before_copy(const ChunkId&, const TransferRegion&) {}
  // Source: the staged copy, fingerprinted and about to leave.
  virtual void on_staged(const ChunkId&, std::span<std::byte>) {}
  // Target: as it came off the link, before it is written to the device.
  virtual void on_received(const ChunkId&, std::span<std::byte>) {}
  // Target: written to the device, not yet fingerprinted there.
  virtual void on_scattered(const ChunkId&, CUdeviceptr, std::uint64_t /*bytes*/) {}
};

}  // namespace ckpt::engine
