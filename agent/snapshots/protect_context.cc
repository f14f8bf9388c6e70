// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshots/protect_context.h"

#include "libckpt/base/random.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::agent::protect {
namespace {

mover::SessionKey next_session_key() {
  static std::uint64_t last = 0;  // used on the event loop only
  return {++last, mover::kCheckpointStoreRank};
}

}  // namespace

Result<mover::OpenSession> session_order(mover::Purpose purpose, wire::Side side,
                                         wire::Incarnation incarnation) {
  mover::OpenSession order;
  order.session = next_session_key();
  order.side = side;
  order.purpose = purpose;
  order.incarnation = incarnation;
  order.fingerprint_key.resize(wire::kFingerprintKeyBytes);
  order.session_token.resize(wire::kSessionTokenBytes);
  CKPT_TRYV(fill_random(order.fingerprint_key));
  CKPT_TRYV(fill_random(order.session_token));
  return order;
}

}  // namespace ckpt::agent::protect
