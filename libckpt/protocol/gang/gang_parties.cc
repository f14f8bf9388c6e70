// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/gang/gang_parties.h"

#include <algorithm>

#include "libckpt/protocol/wire/ids.h"

namespace ckpt::gang {
namespace {

constexpr std::uint32_t kRenewalsInATerm = 3;

template <class T>
struct EventOf;
template <>
struct EventOf<SourceState> {
  using Type = SourceEvent;
};
template <>
struct EventOf<TargetState> {
  using Type = TargetEvent;
};
template <>
struct EventOf<BystanderState> {
  using Type = BystanderEvent;
};

Error not_here(const PartyKey& key) {
  return {ErrorCode::kNotFound, to_text(key.party) + " of migration " + wire::migration_text(key.migration) +
                                    " is not on this node"};
}

Result<PartyState> make(const GangInfo& info, const Party& party, const Record* newest) {
  switch (party.role) {
    case Role::kSource: {
      CKPT_TRY(state, restore_source(info, party.rank, newest));
      return PartyState(std::move(state));
    }
    case Role::kTarget: {
      CKPT_TRY(state, restore_target(info, party.rank, newest));
      return PartyState(std::move(state));
    }
    case Role::kBystander: {
      CKPT_TRY(state, restore_bystander(info, party.rank, newest));
      return PartyState(std::move(state));
    }
    case Role::kCoordinator:
      break;
  }
  return Error(ErrorCode::kProtocol, "A coordinator is not a party of an agent");
}

bool takes_part(const GangInfo& info, const Party& party) {
  const std::vector<Party> all = info.ranks();
  return std::find(all.begin(), all.end(), party) != all.end();
}

bool holds(const SourceState& state) {
  return std::holds_alternative<source::Barrier>(state.phase) ||
         std::holds_alternative<source::Released>(state.phase) ||
         std::holds_alternative<source::Fenced>(state.phase);
}
bool holds(const TargetState& state) {
  const auto* promised = std::get_if<target::Promised>(&state.phase);
  return promised != nullptr && !promised->owner;
}
bool holds(const BystanderState& state) {
  return !std::holds_alternative<bystander::Joining>(state.phase) &&
         !std::holds_alternative<bystander::Old>(state.phase);
}

}  // namespace

const GangInfo& info_of(const PartyState& state) {
  return std::visit([](const auto& known) -> const GangInfo& { return known.info; }, state);
}

bool is_closed(const PartyState& state) {
  return std::visit([](const auto& known) { return is_closed(known); }, state);
}

bool is_ending(const PartyState& state) {
  const auto* source = std::get_if<SourceState>(&state);
  const auto* target = std::get_if<TargetState>(&state);
  const auto* bystander = std::get_if<BystanderState>(&state);
  if (const auto* fenced = source ? std::get_if<source::Fenced>(&source->phase) : nullptr)
    return !fenced->ended;
  if (const auto* left = target ? std::get_if<target::Relinquished>(&target->phase) : nullptr)
    return !left->ended;
  const auto* fenced = bystander ? std::get_if<bystander::Fenced>(&bystander->phase) : nullptr;
  return fenced != nullptr && !fenced->ended;
}

std::string_view phase_name(const PartyState& state) {
  return std::visit([](const auto& known) { return phase_name(known); }, state);
}

void GangParties::set_lease_term(std::uint32_t term_ms) {
  timing_.lease_term_ms = term_ms;
  timing_.lease_renew_ms = term_ms / kRenewalsInATerm;
}

template <class Event>
Result<std::vector<Batch>> GangParties::apply(const PartyKey& key, const Event& event, Nanos now) {
  const auto at = parties_.find(key);
  if (at == parties_.end()) return not_here(key);
  std::vector<Batch> out;
  const auto advance = [&](auto& state) -> Result<void> {
    using State = std::decay_t<decltype(state)>;
    using Wanted = typename EventOf<State>::Type;
    if constexpr (std::is_constructible_v<Wanted, Event>) {
      CKPT_TRY(next, step(state, Wanted(event), now, timing_));
      before_.insert_or_assign(key, PartyState(std::exchange(state, std::move(next.state))));
      if (!next.actions.empty()) out.push_back({key, state.info, std::move(next.actions)});
      return ok();
    } else {
      return Error(ErrorCode::kInvalidArgument, "An event for another party reached " + to_text(key.party));
    }
  };
  CKPT_TRYV(std::visit(advance, at->second));
  return out;
}

Result<std::vector<Batch>> GangParties::restore(std::span<const Record> records, Nanos now) {
  std::map<PartyKey, const Record*> newest;
  for (const Record& record : records) newest[PartyKey(record.info.migration, record.party)] = &record;
  for (const auto& [key, record] : newest) {
    CKPT_TRY(state, make(record->info, record->party, record));
    parties_.insert_or_assign(key, std::move(state));
  }
  std::vector<Batch> out;
  for (const auto& [key, record] : newest) {
    const PartyState& state = parties_.at(key);
    if (is_closed(state) && newest_of(info_of(state).gang, key.party.rank) != &state) continue;
    CKPT_TRY(batches, apply(key, Restarted{}, now));
    std::move(batches.begin(), batches.end(), std::back_inserter(out));
  }
  return out;
}

Result<std::vector<Batch>> GangParties::begin(const wire::CommitMessage& message, Nanos now) {
  const PartyKey key(message.migration, message.to);
  const bool is_prepare = std::holds_alternative<Prepare>(message.body) && message.from == Party();
  if (!takes_part(*message.info, message.to))
    return Error(ErrorCode::kProtocol, to_text(message.to) + " does not take part in that move of ranks");
  CKPT_TRY(state, make(*message.info, message.to, nullptr));
  parties_.insert_or_assign(key, std::move(state));
  if (is_prepare) return apply(key, PrepareReceived{}, now);
  CKPT_TRY(batches, apply(key, Restarted{}, now));
  CKPT_TRY(more, apply(key, Message(message.from, message.body), now));
  std::move(more.begin(), more.end(), std::back_inserter(batches));
  return batches;
}

Result<std::optional<std::vector<Batch>>> GangParties::on_message(const wire::CommitMessage& message,
                                                                  Nanos now) {
  const PartyKey key(message.migration, message.to);
  const auto known = parties_.find(key);
  if (known == parties_.end() && !message.info) return std::optional<std::vector<Batch>>();
  if (known == parties_.end()) {
    CKPT_TRY(begun, begin(message, now));
    return std::optional(std::move(begun));
  }
  if (info_of(known->second).gang != message.job || info_of(known->second).base != message.base)
    return Error(ErrorCode::kProtocol,
                 "Migration " + wire::migration_text(message.migration) + " does not belong to that job");
  CKPT_TRY(batches, apply(key, Message(message.from, message.body), now));
  return std::optional(std::move(batches));
}

Result<std::vector<Batch>> GangParties::on_event(const PartyKey& key, const PartyEvent& event, Nanos now) {
  return std::visit(
      [&](const auto& of_role) {
        return std::visit([&](const auto& what) { return apply(key, what, now); }, of_role);
      },
      event);
}

Result<std::vector<Batch>> GangParties::record_failed(const PartyKey& key, const Reason& reason, Nanos now) {
  const auto before = before_.find(key);
  if (before == before_.end()) return not_here(key);
  parties_.insert_or_assign(key, before->second);
  return apply(key, RecordFailed(reason), now);
}

const PartyState* GangParties::find(const PartyKey& key) const {
  const auto at = parties_.find(key);
  return at == parties_.end() ? nullptr : &at->second;
}

// Returns the newest state of the rank. A rank may be source and target of one move, both on this node. The
// target then takes precedence.
const PartyState* GangParties::newest_of(JobId gang, std::uint32_t rank) const {
  const PartyState* newest = nullptr;
  for (const auto& [key, state] : parties_)
    if (info_of(state).gang == gang && key.party.rank == rank) newest = &state;
  return newest;
}

bool GangParties::may_run_freely(JobId gang, std::uint32_t rank,
                                 const std::function<bool(const PartyKey&)>& is_of) const {
  const PartyState* newest = newest_of(gang, rank);
  for (const auto& [key, state] : parties_) {
    if (info_of(state).gang != gang || key.party.rank != rank || !is_of(key)) continue;
    const bool counts = !is_closed(state) || &state == newest;
    if (counts && std::visit([](const auto& known) { return holds(known); }, state)) return false;
  }
  return true;
}

bool GangParties::is_open(JobId gang, std::uint32_t rank) const {
  return std::any_of(parties_.begin(), parties_.end(), [&](const auto& at) {
    return info_of(at.second).gang == gang && at.first.party.rank == rank && !is_closed(at.second);
  });
}

void GangParties::forget(const std::function<bool(const GangInfo&)>& which) {
  std::erase_if(parties_, [&](const auto& at) { return which(info_of(at.second)); });
  std::erase_if(before_, [&](const auto& at) { return which(info_of(at.second)); });
}

}  // namespace ckpt::gang
