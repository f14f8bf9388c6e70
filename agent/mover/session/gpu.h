// SPDX-License-Identifier: Apache-2.0
// A mover's resources of its GPU, for as long as it lives: context, pinned staging memory, a transport for
// each address of each network. Made at start, since a full or faulty GPU gives none later. A network that
// cannot be used fails the sessions that ask for it, and no other. Threads: immutable once made; the parts
// have their own rules.
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
  // Returns a transport for lanes over `paths` addresses of the network in turn, from the `first` on. An
  // empty `name` is the first network. The transport must be destroyed before this object. kNotFound: there
  // is no such network or address. kUnavailable, and why: one of the addresses cannot be used.
  Result<std::unique_ptr<transport::Transport>> lanes_over(const std::string& name, std::uint32_t first,
                                                           std::uint32_t paths) const;

  Device device;
  std::unique_ptr<engine::StagingPool> staging;
  struct Path {
    std::string address;
    Result<std::unique_ptr<transport::Transport>> transport;  // or why it cannot be used
  };
  struct Network {
    std::string name;
    std::vector<Path> paths;
  };
  std::vector<Network> networks;
  std::uint64_t chunk_bytes = 0;
};

}  // namespace ckpt::mover
