// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/moves.h"

namespace ckpt::agent {

Moves::Moves(Parts parts)
    : peers_(parts.context.executor, std::move(parts.peers), *this),
      gangs_(parts.context, parts.gang_link, peers_, std::move(parts.gangs)),
      switches_(parts.context, peers_, std::move(parts.handovers)),
      settling_(parts.context, protocols_) {}

Result<std::unique_ptr<Moves>> Moves::create(Parts parts) {
  std::unique_ptr<Moves> moves(new Moves(std::move(parts)));
  CKPT_TRYV(moves->peers_.listen());
  return moves;
}

Task<Result<void>> Moves::restore() {
  for (MoveProtocol* protocol : protocols_.all()) {
    CKPT_CO_TRYV(co_await protocol->restore());
  }
  co_return ok();
}

void Moves::on_message(wire::CommitMessage message) {
  protocols_.of(message.kind).on_message(std::move(message));
}

bool Moves::handle(const PeerNode& node, const wire::CommitMessage& message) {
  return protocols_.of(message.kind).take_of_peer(node, message);
}

void Moves::restate() {
  for (MoveProtocol* protocol : protocols_.all()) protocol->restate();
}

void Moves::set_lease_term(std::uint32_t term_ms) {
  for (MoveProtocol* protocol : protocols_.all()) protocol->set_lease_term(term_ms);
}

void Moves::forget(wire::JobId job) {
  for (MoveProtocol* protocol : protocols_.all()) protocol->forget(job);
}

void Moves::release_closed() {
  for (MoveProtocol* protocol : protocols_.all()) protocol->release_closed();
}

}  // namespace ckpt::agent
