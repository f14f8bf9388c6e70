// SPDX-License-Identifier: Apache-2.0
#include "coordinator/migration/network_check.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/base/random.h"

namespace ckpt::coordinator {
namespace {

Error not_reached(const std::string& network, const Place& from, const Place& to, const Error& why) {
  return Error(ErrorCode::kRefused,
               fmt::format("{} does not reach {} over network {}; another one is chosen with --network",
                           from.node, to.node, network))
      .caused_by(why);
}

}  // namespace

control::Task<Result<void>> check_network(NodeCalls& calls, const Migration& migration) {
  const std::chrono::milliseconds own(migration.timeout_ms);
  return check_network(calls, migration.from, migration.to, migration.network,
                       own.count() > 0 ? std::min(own, kNetworkCheckLimit) : kNetworkCheckLimit);
}

control::Task<Result<void>> check_network(NodeCalls& calls, Place from, Place to, std::string network,
                                          std::chrono::milliseconds limit) {
  if (network.empty() || from.node == to.node) co_return ok();
  wire::ListenForCheck listen;
  listen.gpu = to.gpu;
  listen.network = network;
  listen.session_token.resize(wire::kSessionTokenBytes);
  CKPT_CO_TRYV(fill_random(listen.session_token));
  wire::ReachNode reach;
  reach.gpu = from.gpu;
  reach.network = network;
  reach.session_token = listen.session_token;
  auto listening = co_await calls.listen_for_check(to.node, std::move(listen), limit);
  if (!listening) co_return not_reached(network, from, to, listening.assume_error());
  reach.address = std::move(listening.assume_value().address);
  auto reached = co_await calls.reach_node(from.node, std::move(reach), limit);
  if (!reached) co_return not_reached(network, from, to, reached.assume_error());
  spdlog::info("{} reaches {} over network {}: connected in {} us", from.node, to.node, network,
               reached.assume_value().connect_ns / 1000);
  co_return ok();
}

}  // namespace ckpt::coordinator
