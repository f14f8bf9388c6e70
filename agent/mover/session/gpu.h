// SPDX-License-Identifier: Apache-2.0
// A mover's resources of its GPU, for as long as it lives: context, pinned staging memory, transport. Made at
// start, since a full or faulty GPU gives none later. Threads: immutable once made; the parts have their own
// rules.
#pragma once

#include <memory>

#include "libckpt/cuda/driver.h"
#include "libckpt/datapath/engine/shared/staging.h"
#include "libckpt/datapath/transport/transport.h"
#include "libckpt/protocol/wire/mover_session_messages.h"

namespace ckpt::mover {

struct Gpu {
  explicit Gpu(Device d) : device(std::move(d)) {}
  static Result<std::unique_ptr<Gpu>> create(const wire::mover::Configure& configure);
  Result<wire::mover::MoverReady> describe() const;

  Device device;
  std::unique_ptr<engine::StagingPool> staging;
  std::unique_ptr<transport::Transport> transport;
  std::uint64_t chunk_bytes = 0;
};

}  // namespace ckpt::mover
