// SPDX-License-Identifier: Apache-2.0
// Hooks by which tests access the data path. They are set at construction and nullptr in production. Each
// hook is called on a lane's or a coding thread, concurrently for different chunks. The device's context is
// current if device memory is named.
#pragma once

#include <cstddef>
#include <span>

#include "libckpt/datapath/engine/shared/region.h"

namespace ckpt::engine {

class FaultHooks {
 public:
  virtual ~FaultHooks() = default;
  // Runs at the source, before this chunk is copied from the device (the scan has already read it).
  virtual void before_copy(const ChunkId&, const TransferRegion&) {}
  // Runs at the source, before the staged copy of the chunk is sent. The copy has been fingerprinted.
  virtual void on_staged(const ChunkId&, std::span<std::byte>) {}
  // Runs at the target, with the data as received, before it is written to the device.
  virtual void on_received(const ChunkId&, std::span<std::byte>) {}
  // Runs at the target, after the data is written to the device and before its fingerprint is computed there.
  virtual void on_scattered(const ChunkId&, CUdeviceptr, std::uint64_t /*bytes*/) {}
};

}  // namespace ckpt::engine
