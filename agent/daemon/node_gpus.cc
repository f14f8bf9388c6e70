// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/node_gpus.h"

#include "agent/jobs/adoption.h"

namespace ckpt::agent {

NodeGpus::NodeGpus(asio::any_io_executor executor, const Config& config, const Inventory& inventory,
                   std::vector<wire::DataNetwork> networks, std::string mover_program)
    : executor_(std::move(executor)),
      config_(config),
      inventory_(inventory),
      networks_(std::move(networks)),
      mover_program_(std::move(mover_program)) {}

Error NodeGpus::not_here(std::uint32_t gpu) const {
  return {ErrorCode::kNotFound, "Node " + config_.node + " has no GPU " + std::to_string(gpu)};
}

Result<local::GpuIdentity> NodeGpus::identity_of(std::uint32_t gpu) const {
  const GpuFacts* facts = inventory_.gpu(gpu);
  if (facts == nullptr) return not_here(gpu);
  return gpu_identity(facts->uuid, facts->bus_id);
}

Result<std::string> NodeGpus::model_of(std::uint32_t gpu) const {
  const GpuFacts* facts = inventory_.gpu(gpu);
  if (facts == nullptr) return not_here(gpu);
  return facts->name;
}

Result<std::shared_ptr<MoverProcess>> NodeGpus::mover_of(std::uint32_t gpu) {
  auto& mover = movers_[gpu];
  if (mover) return mover;
  if (!inventory_.last().gpus.empty() && !inventory_.gpu(gpu)) {
    movers_.erase(gpu);
    return not_here(gpu);
  }
  MoverSettings settings;
  settings.program = mover_program_;
  settings.log_path = config_.home + "/mover-" + std::to_string(gpu) + ".log";
  settings.configure.node = config_.node;
  settings.configure.gpu = gpu;
  settings.configure.networks = networks_;
  settings.configure.staging_bytes = std::uint64_t{config_.staging_mib} << 20;
  settings.configure.first_port = config_.mover_ports.first;
  settings.configure.last_port = config_.mover_ports.last;
  settings.first_backoff = config_.mover_restart;
  mover = MoverProcess::create(executor_, std::move(settings));
  return mover;
}

std::uint64_t NodeGpus::device_bytes_of(pid_t pid) const {
  return agent::device_bytes_of(inventory_.last(), pid);
}

void NodeGpus::stop() {
  for (auto& [gpu, mover] : movers_) mover->stop();
}

}  // namespace ckpt::agent
