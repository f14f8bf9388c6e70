// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/wire/switch_messages.h"

#include <optional>

#include "libckpt/protocol/wire/codec.h"

namespace ckpt::wire {

template <class A>
decltype(auto) Prepare::fields(A& a) {
  return a(ranks, plan);
}
template <class A>
decltype(auto) Prepared::fields(A& a) {
  return a(payload);
}
template <class A>
decltype(auto) Refused::fields(A& a) {
  return a(reason);
}
template <class A>
decltype(auto) Start::fields(A& a) {
  return a(peer_payload);
}
template <class A>
decltype(auto) Precopied::fields(A& /*a*/) {}
template <class A>
decltype(auto) Granted::fields(A& a) {
  return a(k);
}
template <class A>
decltype(auto) Failed::fields(A& a) {
  return a(reason);
}
template <class A>
decltype(auto) Verified::fields(A& /*a*/) {}
template <class A>
decltype(auto) Commit::fields(A& a) {
  return a(k);
}
template <class A>
decltype(auto) LeaseRequest::fields(A& a) {
  return a(k, sent_at_ns);
}
template <class A>
decltype(auto) Lease::fields(A& a) {
  return a(k, sent_at_ns, term_ms);
}
template <class A>
decltype(auto) Committed::fields(A& a) {
  return a(k);
}
template <class A>
decltype(auto) Runs::fields(A& a) {
  return a(k);
}
template <class A>
decltype(auto) Released::fields(A& /*a*/) {}
template <class A>
decltype(auto) Relinquished::fields(A& a) {
  return a(reason);
}
template <class A>
decltype(auto) AbortRequest::fields(A& a) {
  return a(reason);
}
template <class A>
decltype(auto) Aborted::fields(A& a) {
  return a(reason);
}
template <class A>
decltype(auto) Resumed::fields(A& a) {
  return a(k, owner, never_barrier, reason);
}
template <class A>
decltype(auto) Closed::fields(A& a) {
  return a(side);
}
template <class A>
decltype(auto) Query::fields(A& a) {
  return a(give_up, reason);
}

namespace {

template <std::size_t I = 0>
SwitchBody make_body(std::size_t index) {
  if constexpr (I < std::variant_size_v<SwitchBody>) {
    if (index == I) return SwitchBody(std::in_place_index<I>);
    return make_body<I + 1>(index);
  } else {
    throw DecodeError(ErrorCode::kProtocol, "unknown switch message " + std::to_string(index + 1));
  }
}

std::optional<Incarnation> incarnation_of(const SwitchBody& body) {
  return std::visit(
      [](const auto& b) -> std::optional<Incarnation> {
        if constexpr (requires { b.k; }) return b.k;
        return std::nullopt;
      },
      body);
}

// The target runs n+1, n+3, ..., the source n, n+2, ...
Result<void> check_incarnation(const SwitchMessage& m) {
  const auto k = incarnation_of(m.body);
  if (!k) return ok();
  const bool odd = ((*k - m.base) & 1) != 0;
  bool good = *k >= m.base;
  if (std::holds_alternative<Committed>(m.body) || std::holds_alternative<Granted>(m.body))
    good = good && odd;
  if (std::holds_alternative<Resumed>(m.body)) good = good && !odd;
  if (std::holds_alternative<Commit>(m.body) || std::holds_alternative<Lease>(m.body))
    good = good && odd == (m.to == Party::kTarget);
  if (std::holds_alternative<LeaseRequest>(m.body) || std::holds_alternative<Runs>(m.body))
    good = good && odd == (m.from == Party::kTarget);
  if (!good)
    return Error(ErrorCode::kProtocol, "Message " + std::string(name_of(m.body)) + " with incarnation " +
                                           std::to_string(*k) + " of a migration that began at " +
                                           std::to_string(m.base));
  return ok();
}

}  // namespace

template <class A>
void SwitchMessage::fields(A& a) {
  auto kind = static_cast<std::uint8_t>(body.index() + 1);
  a(migration, job, base, from, to, kind);
  if constexpr (std::is_same_v<A, InputArchive>) {
    if (kind == 0) throw DecodeError(ErrorCode::kProtocol, "switch message 0");
    body = make_body(kind - 1U);
  }
  std::visit([&a](auto& b) { a(b); }, body);
}

std::string_view to_string(Party party) noexcept {
  switch (party) {
    case Party::kInvalid:
      break;
    case Party::kCoordinator:
      return "coordinator";
    case Party::kSource:
      return "source";
    case Party::kTarget:
      return "target";
  }
  return "invalid";
}

std::string_view name_of(const SwitchBody& body) noexcept {
  return std::visit([](const auto& b) { return std::decay_t<decltype(b)>::kName; }, body);
}

std::vector<std::byte> encode_switch(const SwitchMessage& message) {
  return encode(message);
}

Result<SwitchMessage> decode_switch(std::span<const std::byte> body) {
  CKPT_TRY(message, decode<SwitchMessage>(body));
  if (message.migration == 0 || message.job == 0)
    return Error(ErrorCode::kProtocol, "Switch message without migration or job");
  if (message.from == message.to) return Error(ErrorCode::kProtocol, "Switch message from a party to itself");
  CKPT_TRYV(check_incarnation(message));
  return std::move(message);
}

}  // namespace ckpt::wire
