// SPDX-License-Identifier: Apache-2.0
#include "agent/coordinator_link/network_checks.h"

#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::agent {
namespace {

// The time for which a target listens and a source tries to connect.
constexpr Milliseconds kCheckLife{8000};

}  // namespace

// The state of one request's check. The request's coroutine owns it.
struct NetworkChecks::Check {
  explicit Check(const asio::any_io_executor& executor) : changed(executor) {}
  AsyncEvent changed;
  std::optional<std::int64_t> connect_ns;
  std::optional<Error> failed;
  std::shared_ptr<MoverSession> session;
};

NetworkChecks::NetworkChecks(CoordinatorLink& link, MigrationContext& context)
    : link_(link), context_(context) {
  answer_with("listen for a check", &NetworkChecks::listen);
  answer_with("reach a node", &NetworkChecks::reach);
}

template <class M>
void NetworkChecks::answer_with(const char* what, Task<> (NetworkChecks::*answer)(M)) {
  link_.subscribe(M::kFrame, [this, what, answer](std::span<const std::byte> body) -> Result<void> {
    CKPT_TRY(request, wire::decode<M>(body));
    control::spawn(context_.executor, what, (this->*answer)(std::move(request)));
    return ok();
  });
}

// Waits until the lane is open or has failed.
Task<> NetworkChecks::wait_for_peer(Check& check) {
  const auto until = std::chrono::steady_clock::now() + kCheckLife;
  while (!check.connect_ns && !check.failed) {
    if (!co_await check.changed.wait(until)) co_return;
  }
}

Task<> NetworkChecks::listen(wire::ListenForCheck request) {
  wire::ListensForCheck answer;
  answer.request_id = request.request_id;
  Check check(context_.executor);
  auto address = co_await begin_listening(check, std::move(request));
  if (address) {
    answer.address = *std::move(address);
    link_.send(answer);
    co_await wait_for_peer(check);
  } else {
    link_.reply(answer.request_id, address.error());
  }
  if (check.session) co_await check.session->end();
}

Task<Result<std::string>> NetworkChecks::begin_listening(Check& check, wire::ListenForCheck request) {
  CKPT_CO_TRYV(co_await open(check, wire::Side::kTarget, std::move(request)));
  CKPT_CO_TRY(addresses, co_await check.session->listen());
  if (addresses.size() != 1)
    co_return Error(ErrorCode::kInternal,
                    "The mover must listen on one address for the check, but it listens on " +
                        std::to_string(addresses.size()) + " addresses");
  co_return addresses.front();
}

Task<> NetworkChecks::reach(wire::ReachNode request) {
  wire::NodeReached answer;
  answer.request_id = request.request_id;
  Check check(context_.executor);
  auto connected = co_await connect(check, std::move(request));
  if (connected) {
    answer.connect_ns = *connected;
    link_.send(answer);
  } else {
    link_.reply(answer.request_id, connected.error());
  }
  if (check.session) co_await check.session->end();
}

Task<Result<std::int64_t>> NetworkChecks::connect(Check& check, wire::ReachNode request) {
  mover::ReachPeer peer;
  peer.address = request.address;
  CKPT_CO_TRYV(co_await open(check, wire::Side::kSource, std::move(request)));
  CKPT_CO_TRYV(check.session->send(peer));
  co_await wait_for_peer(check);
  if (check.connect_ns) co_return *check.connect_ns;
  if (check.failed) co_return *check.failed;
  co_return Error(ErrorCode::kTimedOut,
                  "No answer from " + peer.address + " within " + std::to_string(kCheckLife.count()) + " ms");
}

template <class M>
Task<Result<void>> NetworkChecks::open(Check& check, wire::Side side, M request) {
  CKPT_CO_TRY(process, context_.gpus.mover_of(request.gpu));
  CKPT_CO_TRYV(co_await process->ready(context_.config.mover_timeout));
  mover::OpenSession order;
  order.session = mover::SessionKey(++checks_, mover::kCheckRank);
  order.side = side;
  order.purpose = mover::Purpose::kCheck;
  order.fingerprint_key.resize(wire::kFingerprintKeyBytes);
  order.session_token = std::move(request.session_token);
  order.network = std::move(request.network);
  order.first_path = request.path;
  MoverSession::Handlers handlers;
  // The handlers may refer to the check, because the session and its handlers are destroyed before the check.
  handlers.event = [&check](mover::Packet packet) {
    if (const auto* reached = std::get_if<mover::PeerReached>(&packet.message))
      check.connect_ns = reached->connect_ns;
    check.changed.notify();
  };
  handlers.failed = [&check](Error error) {
    check.failed = std::move(error);
    check.changed.notify();
  };
  CKPT_CO_TRY(session, MoverSession::open(context_.executor, process, std::move(order),
                                          context_.config.mover_timeout, std::move(handlers)));
  check.session = session;
  co_return ok();
}

}  // namespace ckpt::agent
