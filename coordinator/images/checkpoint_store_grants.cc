// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/checkpoint_store_grants.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kGranting{30};
// The longest time of a grant. It exceeds any use, and the grant is withdrawn as soon as its use is over.
constexpr std::chrono::hours kLongestGrant{2};

}  // namespace

control::Task<Result<wire::CheckpointStorePeer>> CheckpointStoreGrants::ask(
    std::string owner, std::string user, wire::GrantCheckpointStore request) {
  wire::CheckpointStorePeer peer;
  if (owner == user) co_return peer;
  request.lasts_ms = static_cast<std::uint64_t>(std::chrono::milliseconds(kLongestGrant).count());
  CKPT_CO_TRY(granted, co_await calls_.grant_checkpoint_store(owner, std::move(request), kGranting));
  peer.node = owner;
  peer.address = granted.address;
  peer.token = std::move(granted.token);
  peer.limit_bytes = granted.limit_bytes;
  co_return peer;
}

control::Task<> CheckpointStoreGrants::give_back(wire::CheckpointStorePeer peer) {
  if (peer.address.empty()) co_return;
  wire::GrantCheckpointStore request;
  request.revoke = peer.token;
  (void)co_await calls_.call(peer.node, std::move(request), kGranting);
}

}  // namespace ckpt::coordinator
