// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/wire/commit_messages.h"

#include <algorithm>
#include <type_traits>

#include "libckpt/protocol/wire/codec.h"

namespace ckpt::wire {
namespace {

constexpr std::size_t kMaxRanks = 1024;

template <class What, class... Some>
constexpr bool kIsOneOf = (std::is_same_v<What, Some> || ...);
template <class What>
constexpr bool kIsOfGang = !kIsOneOf<What, Refused, Commit>;
template <class What>
constexpr bool kIsOfHandover = !kIsOneOf<What, Withdraw, Returned, Kept, Restore, Waiting, Never, Ready,
                                         InGate, Go, Owns, Held, HeldStill, Lifted, Gone, Old, Dead, Fenced>;

template <std::size_t I = 0>
Body make_body(std::size_t index) {
  if constexpr (I < std::variant_size_v<Body>) {
    if (index == I) return Body(std::in_place_index<I>);
    return make_body<I + 1>(index);
  } else {
    throw DecodeError(ErrorCode::kProtocol, "unknown commit message " + std::to_string(index + 1));
  }
}

// A body with the fields of all kinds of bodies, in which a body of any kind is encoded.
struct FlatBody {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  FlatBody() = default;
  explicit FlatBody(const Body& body);
  [[nodiscard]] Body to_body() const;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(number, k, flag, never_barrier, side, reason, payload, sent_at_ns, term_ms, ranks);
  }

  std::uint8_t number = 0;  // the position of the body's type in Body, counted from 1
  Incarnation k = 0;
  bool flag = false;           // the flag of the body: `dead` in Waiting, `veto` in Relinquished, `owner` in
                               // Resumed, `give_up` in Query
  bool never_barrier = false;  // the member `never_barrier` of Resumed
  std::uint8_t side = 0;       // the side of Closed
  Reason reason;
  Bytes payload;  // the plan of Prepare, or the payload of other bodies
  std::int64_t sent_at_ns = 0;
  std::uint32_t term_ms = 0;
  std::vector<RankPlace> ranks;  // the ranks of Prepare
};

// Calls copy(field of `flat`, member of `what`) for each member except the side.
template <class Flat, class What, class Copy>
void each_member(Flat& flat, What& what, Copy copy) {
  if constexpr (requires { what.k; }) copy(flat.k, what.k);
  if constexpr (requires { what.dead; }) copy(flat.flag, what.dead);
  if constexpr (requires { what.veto; }) copy(flat.flag, what.veto);
  if constexpr (requires { what.owner; }) copy(flat.flag, what.owner);
  if constexpr (requires { what.give_up; }) copy(flat.flag, what.give_up);
  if constexpr (requires { what.never_barrier; }) copy(flat.never_barrier, what.never_barrier);
  if constexpr (requires { what.reason; }) copy(flat.reason, what.reason);
  if constexpr (requires { what.payload; }) copy(flat.payload, what.payload);
  if constexpr (requires { what.plan; }) copy(flat.payload, what.plan);
  if constexpr (requires { what.sent_at_ns; }) copy(flat.sent_at_ns, what.sent_at_ns);
  if constexpr (requires { what.term_ms; }) copy(flat.term_ms, what.term_ms);
  if constexpr (requires { what.ranks; }) copy(flat.ranks, what.ranks);
}

FlatBody::FlatBody(const Body& body) : number(static_cast<std::uint8_t>(body.index() + 1)) {
  std::visit(
      [this](const auto& what) {
        each_member(*this, what, [](auto& field, const auto& member) { field = member; });
        if constexpr (requires { what.side; }) side = static_cast<std::uint8_t>(what.side);
      },
      body);
}

Body FlatBody::to_body() const {
  if (number == 0) throw DecodeError(ErrorCode::kProtocol, "commit message 0");
  Body body = make_body(number - 1U);
  std::visit(
      [this](auto& what) {
        each_member(*this, what, [](const auto& field, auto& member) { member = field; });
        if constexpr (requires { what.side; }) {
          what.side = static_cast<Side>(side);
          if (!is_known(what.side)) throw DecodeError(ErrorCode::kProtocol, "unknown side");
        }
      },
      body);
  return body;
}

std::optional<Incarnation> incarnation_of(const Body& body) {
  return std::visit(
      [](const auto& b) -> std::optional<Incarnation> {
        if constexpr (
            requires { b.k; } && !requires { b.side; })
          return b.k;
        return std::nullopt;
      },
      body);
}

// Checks the incarnation's parity: the target runs n+1, n+3, ..., the source n, n+2, ...
Result<void> check_incarnation(const CommitMessage& m) {
  const auto k = incarnation_of(m.body);
  if (!k) return ok();
  const bool odd = ((*k - m.base) & 1) != 0;
  bool good = *k >= m.base;
  if (std::holds_alternative<Committed>(m.body) || std::holds_alternative<Granted>(m.body))
    good = good && odd;
  if (std::holds_alternative<Resumed>(m.body)) good = good && !odd;
  if (std::holds_alternative<Commit>(m.body) || std::holds_alternative<Lease>(m.body))
    good = good && odd == (m.to.role == Role::kTarget);
  if (std::holds_alternative<LeaseRequest>(m.body) || std::holds_alternative<Ran>(m.body))
    good = good && odd == (m.from.role == Role::kTarget);
  if (!good)
    return Error(ErrorCode::kProtocol, "Message " + std::string(name_of(m.body)) + " with incarnation " +
                                           std::to_string(*k) + " of a migration that began at " +
                                           std::to_string(m.base));
  return ok();
}

Result<void> check_of_handover(const CommitMessage& m) {
  const auto is_of_handover = [](const Party& party) {
    return party.role != Role::kBystander && party.rank == 0;
  };
  if (!is_of_handover(m.from) || !is_of_handover(m.to) || m.info || m.asks_for_info || m.times)
    return Error(ErrorCode::kProtocol,
                 "A message of a switch has fields that only a gang's message may have");
  return check_incarnation(m);
}

Result<void> check_of_gang(const CommitMessage& m) {
  if (!m.info) return ok();
  CKPT_TRYV(check(*m.info));
  if (m.info->migration != m.migration || m.info->gang != m.job || m.info->base != m.base)
    return Error(ErrorCode::kProtocol, "The message describes a different move of ranks");
  return ok();
}

}  // namespace

template <class A>
void CommitMessage::fields(A& a) {
  FlatBody flat(body);
  a(kind, migration, job, base, from, to, flat, info, asks_for_info, times);
  if constexpr (std::is_same_v<A, InputArchive>) body = flat.to_body();
}

std::string_view to_string(Role role) noexcept {
  switch (role) {
    case Role::kCoordinator:
      return "coordinator";
    case Role::kSource:
      return "source";
    case Role::kTarget:
      return "target";
    case Role::kBystander:
      return "bystander";
  }
  return "invalid";
}

std::string to_text(const Party& party) {
  switch (party.role) {
    case Role::kCoordinator:
      return "C";
    case Role::kSource:
      return "S" + std::to_string(party.rank);
    case Role::kTarget:
      return "T" + std::to_string(party.rank);
    case Role::kBystander:
      return "U" + std::to_string(party.rank);
  }
  return "invalid";
}

std::vector<Party> GangInfo::ranks() const {
  std::vector<Party> all;
  for (const std::uint32_t rank : moved) {
    all.emplace_back(Role::kSource, rank);
    all.emplace_back(Role::kTarget, rank);
  }
  for (const std::uint32_t rank : staying) all.emplace_back(Role::kBystander, rank);
  return all;
}

Result<void> check(const GangInfo& info) {
  const auto bad = [](const char* what) {
    return Error(ErrorCode::kProtocol, std::string("A move of ranks ") + what);
  };
  if (info.migration == 0 || info.gang == 0 || info.base == 0) return bad("without ids");
  std::vector<std::uint32_t> all = info.moved;
  all.insert(all.end(), info.staying.begin(), info.staying.end());
  if (info.moved.empty() || all.size() > kMaxRanks) return bad("has no ranks, or too many");
  if (!std::is_sorted(info.moved.begin(), info.moved.end()) ||
      !std::is_sorted(info.staying.begin(), info.staying.end()))
    return bad("has ranks that are not in order");
  std::sort(all.begin(), all.end());
  if (std::adjacent_find(all.begin(), all.end()) != all.end()) return bad("names a rank twice");
  return ok();
}

std::string_view name_of(const Body& body) noexcept {
  return std::visit([](const auto& b) { return std::decay_t<decltype(b)>::kName; }, body);
}

bool has_body(CommitKind kind, const Body& body) noexcept {
  return std::visit(
      [kind](const auto& b) {
        using Known = std::decay_t<decltype(b)>;
        return kind == CommitKind::kHandover ? kIsOfHandover<Known> : kIsOfGang<Known>;
      },
      body);
}

std::vector<std::byte> encode_commit(const CommitMessage& message) {
  return encode(message);
}

Result<CommitMessage> decode_commit(std::span<const std::byte> bytes) {
  CKPT_TRY(message, decode<CommitMessage>(bytes));
  if (message.migration == 0 || message.job == 0)
    return Error(ErrorCode::kProtocol, "The commit message has no migration or no job");
  if (message.from == message.to)
    return Error(ErrorCode::kProtocol, "The sender of the commit message is also its receiver");
  if (!has_body(message.kind, message.body))
    return Error(ErrorCode::kProtocol,
                 "Message " + std::string(name_of(message.body)) + " belongs to the other commit protocol");
  for (const Party& party : {message.from, message.to})
    if (party.role == Role::kCoordinator && party.rank != 0)
      return Error(ErrorCode::kProtocol, "The commit message names a rank for the coordinator");
  CKPT_TRYV(message.kind == CommitKind::kHandover ? check_of_handover(message) : check_of_gang(message));
  return std::move(message);
}

Result<CommitMessage> decode_between_agents(std::span<const std::byte> body) {
  if (body.size() > kMaxBetweenAgentsBytes)
    return Error(ErrorCode::kProtocol,
                 "A message of " + std::to_string(body.size()) + " bytes is not allowed on a peer link");
  CKPT_TRY(message, decode_commit(body));
  const bool is_of_coordinator = message.from == Party() || message.to == Party();
  const bool has_more = message.info || message.asks_for_info || message.times;
  if (message.kind == CommitKind::kGang && (is_of_coordinator || has_more))
    return Error(ErrorCode::kProtocol, "A message of the coordinator is not allowed on a peer link");
  return std::move(message);
}

}  // namespace ckpt::wire
