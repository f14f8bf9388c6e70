// SPDX-License-Identifier: Apache-2.0
// A mover's GPU resources for its lifetime: context, pinned staging memory, and a transport for each address
// of each network. They are allocated at start, because a full or faulty GPU provides none later. An unusable
// network fails only the sessions that request it.
// Threads: immutable after creation. The parts have their own rules.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "libckpt/cuda/driver.h"
#include "libckpt/datapath/engine/shared/staging.h"
#include "libckpt/datapath/transport/transport.h"
#include "libckpt/protocol/wire/mover_session_messages.h"

namespace ckpt::mover {

struct Gpu {
  explicit Gpu(Device d) : device(std::move(d)) {}
  static Result<std::unique_ptr<Gpu>> create(const wire::mover::Configure& configure);
  Result<wire::mover::MoverReady> describe() const;
  // Returns a transport for lanes that use `paths` addresses of the network in rotation, beginning with
  // address number `first`. An empty `name` means the first network. The transport must be destroyed before
  // this object. kNotFound means that there is no such network or address. kUnavailable contains the reason
  // why one of the addresses cannot be used.
  Result<std::unique_ptr<transport::Transport>> lanes_over(const std::string& name, std::uint32_t first,
                                                           std::uint32_t paths) const;

  Device device;
  std::unique_ptr<engine::StagingPool> staging;
  struct Path {
    std::string address;
    Result<std::unique_ptr<transport::Transport>> transport;  // the transport, or the reason why it cannot be
                                                              // used
  };
  struct Network {
    std::string name;
    std::vector<Path> paths;
  };
  std::vector<Network> networks;
  std::uint64_t chunk_bytes = 0;
};

}  // namespace ckpt::mover
