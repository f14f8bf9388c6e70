// SPDX-License-Identifier: Apache-2.0
#include "coordinator/migration/network_check.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/base/random.h"

namespace ckpt::coordinator {
namespace {

Error not_reached(const SharedNetwork& network, const AddressPair& path, const Place& from, const Place& to,
                  const Error& error) {
  return Error(ErrorCode::kRefused,
               fmt::format(
                   "{} cannot reach {} over network {}, from {} to {}; choose another network with --network",
                   from.node, to.node, network.name, path.source, path.target))
      .caused_by(error);
}

control::Task<Result<std::int64_t>> check_path(NodeCalls& calls, Place from, Place to, std::string network,
                                               std::uint32_t path, std::chrono::milliseconds limit) {
  wire::ListenForCheck listen;
  listen.gpu = to.gpu;
  listen.network = network;
  listen.path = path;
  listen.session_token.resize(wire::kSessionTokenBytes);
  CKPT_CO_TRYV(fill_random(listen.session_token));
  wire::ReachNode reach;
  reach.gpu = from.gpu;
  reach.network = network;
  reach.path = path;
  reach.session_token = listen.session_token;
  CKPT_CO_TRY(listening, co_await calls.listen_for_check(to.node, std::move(listen), limit));
  reach.address = std::move(listening.address);
  CKPT_CO_TRY(reached, co_await calls.reach_node(from.node, std::move(reach), limit));
  co_return reached.connect_ns;
}

}  // namespace

control::Task<Result<void>> check_network(NodeCalls& calls, const Migration& migration,
                                          SharedNetwork network) {
  const std::chrono::milliseconds own(migration.timeout_ms);
  return check_network(calls, migration.from, migration.to, std::move(network),
                       own.count() > 0 ? std::min(own, kNetworkCheckLimit) : kNetworkCheckLimit);
}

control::Task<Result<void>> check_network(NodeCalls& calls, Place from, Place to, SharedNetwork network,
                                          std::chrono::milliseconds limit) {
  if (network.name.empty() || from.node == to.node) co_return ok();
  for (std::uint32_t i = 0; i < network.paths.size(); ++i) {
    const AddressPair& path = network.paths[i];
    const auto connect_ns = co_await check_path(calls, from, to, network.name, i, limit);
    if (!connect_ns) co_return not_reached(network, path, from, to, connect_ns.error());
    spdlog::info("{} reaches {} over network {}, from {} to {}: connected in {} us", from.node, to.node,
                 network.name, path.source, path.target, *connect_ns / 1000);
  }
  co_return ok();
}

}  // namespace ckpt::coordinator
