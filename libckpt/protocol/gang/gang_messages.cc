// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/gang/gang_messages.h"

#include <type_traits>

namespace ckpt::gang {
namespace {

template <std::size_t I = 0>
std::optional<Body> make_body(std::size_t index) {
  if constexpr (I < std::variant_size_v<Body>) {
    if (index == I) return Body(std::in_place_index<I>);
    return make_body<I + 1>(index);
  } else {
    return std::nullopt;
  }
}

bool fits(Role role, RecordKind kind) {
  const auto number = static_cast<unsigned>(kind);
  const bool is_shared = kind == RecordKind::kHeldStill || kind == RecordKind::kFenced;
  switch (role) {
    case Role::kCoordinator:
      return number < 20;
    case Role::kSource:
      return (number >= 20 && number < 30) || is_shared;
    case Role::kTarget:
      return number >= 30 && number < 40;
    case Role::kBystander:
      return (number >= 40 && number < 50) || is_shared;
  }
  return false;
}

}  // namespace

FlatBody::FlatBody(const Body& body) : kind(static_cast<std::uint8_t>(body.index() + 1)) {
  std::visit(
      [this](const auto& what) {
        if constexpr (requires { what.k; }) k = what.k;
        if constexpr (requires { what.dead; }) flag = what.dead;
        if constexpr (requires { what.veto; }) flag = what.veto;
        if constexpr (requires { what.side; }) side = static_cast<std::uint8_t>(what.side);
        if constexpr (requires { what.reason; }) reason = what.reason;
        if constexpr (requires { what.payload; }) payload = what.payload;
        if constexpr (requires { what.sent_at_ns; }) sent_at_ns = what.sent_at_ns;
        if constexpr (requires { what.term_ms; }) term_ms = what.term_ms;
      },
      body);
}

Result<Body> FlatBody::to_body() const {
  auto made = kind == 0 ? std::nullopt : make_body(kind - 1U);
  if (!made) return Error(ErrorCode::kProtocol, "Message " + std::to_string(kind) + " of a move of ranks");
  bool is_right = true;
  std::visit(
      [&](auto& what) {
        if constexpr (requires { what.k; }) what.k = k;
        if constexpr (requires { what.dead; }) what.dead = flag;
        if constexpr (requires { what.veto; }) what.veto = flag;
        if constexpr (requires { what.side; }) {
          is_right = side == 1 || side == 2;
          what.side = static_cast<Side>(side);
        }
        if constexpr (requires { what.reason; }) what.reason = reason;
        if constexpr (requires { what.payload; }) what.payload = payload;
        if constexpr (requires { what.sent_at_ns; }) what.sent_at_ns = sent_at_ns;
        if constexpr (requires { what.term_ms; }) what.term_ms = term_ms;
      },
      *made);
  if (!is_right) return Error(ErrorCode::kProtocol, "A side of a move of ranks that does not exist");
  return *std::move(made);
}

Result<GangMessage> decode_message(std::span<const std::byte> bytes) {
  CKPT_TRY(message, wire::decode<GangMessage>(bytes));
  if (message.migration == 0 || message.gang == 0)
    return Error(ErrorCode::kProtocol, "Message of a move of ranks without ids");
  if (message.from == message.to)
    return Error(ErrorCode::kProtocol, "Message of a move of ranks from a party to itself");
  CKPT_TRYV(message.body.to_body());
  if (!message.info) return std::move(message);
  CKPT_TRYV(check(*message.info));
  if (message.info->migration != message.migration || message.info->gang != message.gang)
    return Error(ErrorCode::kProtocol, "Message with the description of another move of ranks");
  return std::move(message);
}

Result<Record> GangRecords::decode(std::span<const std::byte> bytes) {
  CKPT_TRY(record, wire::decode<Record>(bytes));
  const auto side = static_cast<unsigned>(record.side);
  const bool is_closed = record.kind == RecordKind::kClosed;
  if (!check(record.info) || !fits(record.party.role, record.kind) || side > 2 || is_closed != (side != 0))
    return Error(ErrorCode::kCorrupt,
                 "Record " + name_of(record) + " of " + to_text(record.party) + " contradicts itself");
  return std::move(record);
}

}  // namespace ckpt::gang
