// SPDX-License-Identifier: Apache-2.0
// The GPUs of this node as migrations and images see them (GpuPort), with one mover each. A mover is created
// when it is first requested.
// Threads: the event loop. Ownership: owns the movers; the inventory outlives it. Errors: kNotFound if the
// node has no such GPU.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/gpus/inventory.h"
#include "agent/migration/ports/gpu_port.h"
#include "agent/settings/config.h"

namespace ckpt::agent {

class NodeGpus : public GpuPort {
 public:
  using Movers = std::map<std::uint32_t, std::shared_ptr<MoverProcess>>;
  // Takes the settings. `networks` lists the networks that have addresses of this machine.
  NodeGpus(asio::any_io_executor executor, const Config& config, const Inventory& inventory,
           std::vector<wire::DataNetwork> networks, std::string mover_program);

  [[nodiscard]] Result<local::GpuIdentity> identity_of(std::uint32_t gpu) const override;
  [[nodiscard]] Result<std::string> model_of(std::uint32_t gpu) const override;
  [[nodiscard]] Result<std::shared_ptr<MoverProcess>> mover_of(std::uint32_t gpu) override;
  [[nodiscard]] std::uint64_t device_bytes_of(pid_t pid) const override;

  [[nodiscard]] const Movers& movers() const noexcept { return movers_; }
  // Stops all movers.
  void stop();

 private:
  [[nodiscard]] Error not_here(std::uint32_t gpu) const;

  asio::any_io_executor executor_;
  const Config& config_;
  const Inventory& inventory_;
  std::vector<wire::DataNetwork> networks_;
  std::string mover_program_;
  Movers movers_;
};

}  // namespace ckpt::agent
