// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/session/gpu.h"

#include <spdlog/spdlog.h>

#include <array>

#include "libckpt/datapath/engine/source/sender.h"
#include "libckpt/datapath/track/scanner.h"

namespace ckpt::mover {
namespace {

constexpr std::uint64_t kMaxStagingBytes = std::uint64_t{256} << 20;

Result<std::unique_ptr<transport::Transport>> open_network(const wire::DataNetwork& network) {
  if (network.transport == wire::LaneTransport::kTls) {
    transport::TlsOptions options;
    options.ip = network.address;
    return transport::make_tls_transport(options);
  }
  transport::UcxOptions options;
  options.ip = network.address;
  options.rdma = network.transport == wire::LaneTransport::kRdmaTrusted;
  return transport::make_ucx_transport(options);
}

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::create(const wire::mover::Configure& configure) {
  if (configure.staging_bytes > kMaxStagingBytes)
    return Error(ErrorCode::kInvalidArgument, "Staging memory of " + std::to_string(configure.staging_bytes) +
                                                  " bytes: at most " + std::to_string(kMaxStagingBytes));
  const std::uint64_t chunk_bytes =
      configure.chunk_bytes == 0 ? engine::kDefaultChunkBytes : configure.chunk_bytes;
  if (!engine::is_chunk_size(chunk_bytes))
    return Error(ErrorCode::kInvalidArgument, "Chunks of " + std::to_string(chunk_bytes) +
                                                  " bytes: a power of two from 64 KiB to 2 MiB is possible");
  CKPT_TRY(device, Device::open(static_cast<int>(configure.gpu)));
  auto gpu = std::make_unique<Gpu>(std::move(device));
  gpu->chunk_bytes = chunk_bytes;
  CKPT_TRY(staging, engine::StagingPool::create(gpu->device, configure.staging_bytes));
  gpu->staging = std::move(staging);
  for (const wire::DataNetwork& network : configure.networks) {
    Gpu::Network& opened = gpu->networks.emplace_back(Gpu::Network{network.name, open_network(network)});
    if (!opened.transport)
      spdlog::error("network cannot be used: name {} reason {}", network.name,
                    opened.transport.assume_error().to_string());
  }
  if (configure.networks.empty())
    gpu->networks.push_back(Gpu::Network{"local", transport::make_tls_transport({})});
  return gpu;
}

Result<transport::Transport*> Gpu::transport_of(const std::string& name) const {
  for (const Network& network : networks) {
    if (!name.empty() && network.name != name) continue;
    if (network.transport) return network.transport.assume_value().get();
    return Error(ErrorCode::kUnavailable, "Network " + network.name + " cannot be used here")
        .caused_by(network.transport.assume_error());
  }
  return Error(ErrorCode::kNotFound, "This node has no network \"" + name + "\"");
}

Result<wire::mover::MoverReady> Gpu::describe() const {
  const ContextScope scope(device);
  std::array<char, 256> name{};
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  CKPT_CUDA_TRY(device.api(),
                cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device.device()));
  CKPT_CUDA_TRY(device.api(), cuMemGetInfo_v2(&free_bytes, &total_bytes));
  wire::mover::MoverReady ready;
  ready.device_name = name.data();
  ready.memory_bytes = total_bytes;
  ready.free_bytes = free_bytes;
  return ready;
}

}  // namespace ckpt::mover
