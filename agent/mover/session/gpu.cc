// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/session/gpu.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>

#include "libckpt/datapath/engine/source/sender.h"
#include "libckpt/datapath/track/scanner.h"

namespace ckpt::mover {
namespace {

constexpr std::uint64_t kMaxStagingBytes = std::uint64_t{256} << 20;

Result<std::unique_ptr<transport::Transport>> open_path(wire::LaneTransport transport,
                                                        const std::string& address,
                                                        transport::PortRange ports) {
  if (transport == wire::LaneTransport::kTls) {
    transport::TlsOptions options;
    options.ip = address;
    options.ports = ports;
    return transport::make_tls_transport(options);
  }
  transport::UcxOptions options;
  options.ip = address;
  options.ports = ports;
  options.rdma = transport == wire::LaneTransport::kRdmaTrusted;
  return transport::make_ucx_transport(options);
}

Gpu::Network open_network(const wire::DataNetwork& network, transport::PortRange ports) {
  Gpu::Network opened{network.name, {}};
  for (const std::string& address : network.addresses()) {
    const Gpu::Path& path =
        opened.paths.emplace_back(Gpu::Path{address, open_path(network.transport, address, ports)});
    if (!path.transport)
      spdlog::error("network cannot be used: name {} address {} reason {}", network.name, address,
                    path.transport.error().to_string());
  }
  return opened;
}

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::create(const wire::mover::Configure& configure) {
  if (configure.staging_bytes > kMaxStagingBytes)
    return Error(ErrorCode::kInvalidArgument, "Staging memory of " + std::to_string(configure.staging_bytes) +
                                                  " bytes exceeds the limit of " +
                                                  std::to_string(kMaxStagingBytes));
  const std::uint64_t chunk_bytes =
      configure.chunk_bytes == 0 ? engine::kDefaultChunkBytes : configure.chunk_bytes;
  if (!engine::is_chunk_size(chunk_bytes))
    return Error(ErrorCode::kInvalidArgument,
                 "Chunks of " + std::to_string(chunk_bytes) +
                     " bytes are refused: the size must be a power of two from 64 KiB to 2 MiB");
  if (configure.last_port < configure.first_port || (configure.first_port == 0 && configure.last_port != 0))
    return Error(ErrorCode::kInvalidArgument, "Ports from " + std::to_string(configure.first_port) + " to " +
                                                  std::to_string(configure.last_port) +
                                                  " are not a valid range");
  CKPT_TRY(device, Device::open(static_cast<int>(configure.gpu)));
  auto gpu = std::make_unique<Gpu>(std::move(device));
  gpu->chunk_bytes = chunk_bytes;
  CKPT_TRY(staging, engine::StagingPool::create(gpu->device, configure.staging_bytes));
  gpu->staging = std::move(staging);
  const transport::PortRange ports{configure.first_port, configure.last_port};
  for (const wire::DataNetwork& network : configure.networks)
    gpu->networks.push_back(open_network(network, ports));
  if (configure.networks.empty())
    gpu->networks.push_back(open_network({"local", "127.0.0.1", wire::LaneTransport::kTls}, ports));
  return gpu;
}

Result<std::unique_ptr<transport::Transport>> Gpu::lanes_over(const std::string& name, std::uint32_t first,
                                                              std::uint32_t paths) const {
  const auto network = std::find_if(networks.begin(), networks.end(),
                                    [&](const Network& at) { return name.empty() || at.name == name; });
  if (network == networks.end())
    return Error(ErrorCode::kNotFound, "This node has no network \"" + name + "\"");
  const std::size_t end = std::size_t{first} + std::max(paths, 1U);
  if (end > network->paths.size())
    return Error(ErrorCode::kNotFound,
                 "Network " + network->name + " has " + std::to_string(network->paths.size()) +
                     " addresses on this node, but " + std::to_string(end) + " are needed. Try again");
  std::vector<transport::Transport*> over;
  for (std::size_t i = first; i < end; ++i) {
    const Path& path = network->paths[i];
    if (!path.transport)
      return Error(ErrorCode::kUnavailable,
                   "Network " + network->name + " cannot be used on this node at " + path.address)
          .caused_by(path.transport.error());
    over.push_back(path.transport->get());
  }
  return transport::make_spread_transport(std::move(over));
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
