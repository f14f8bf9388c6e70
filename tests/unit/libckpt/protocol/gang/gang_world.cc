// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/libckpt/protocol/gang/gang_world.h"

#include <algorithm>

namespace ckpt::gang::test {
namespace {

const Party kCoordinator;

std::vector<std::uint32_t> numbers(std::uint32_t from, std::uint32_t count) {
  std::vector<std::uint32_t> list;
  for (std::uint32_t i = 0; i < count; ++i) list.push_back(from + i);
  return list;
}

template <class... Cases>
struct Overload : Cases... {
  using Cases::operator()...;
};

}  // namespace

World::World(Options options) : options_(options), random_(options.seed), chance_(options.chance) {
  info_.migration = info_.gang = info_.base = 1;
  info_.moved = numbers(0, options_.moved);
  info_.staying = numbers(options_.moved, options_.staying);
  info_.overlaps = options_.overlaps;
  info_.communicators_ms = options_.communicators_ms;
  for (const Party& party : everyone()) {
    hosts_[party];
    journals_[party];
    Instance& instance = instances_[party];
    instance.alive = instance.running = party.role == Role::kSource || party.role == Role::kBystander;
    instance.has_old_communicators = instance.alive;
  }
}

std::vector<Party> World::everyone() const {
  std::vector<Party> all = info_.ranks();
  all.insert(all.begin(), kCoordinator);
  return all;
}

// ---- time ----
void World::at(Nanos when, std::function<void()> what) {
  events_.emplace(std::pair(std::max(when, now_), order_++), std::move(what));
}

bool World::step() {
  if (events_.empty()) return false;
  auto node = events_.extract(events_.begin());
  now_ = node.key().first;
  node.mapped()();
  check();
  return true;
}

void World::run_for(std::int64_t ms) {
  const Nanos until = now_ + ms * kNanosPerMs;
  while (!events_.empty() && events_.begin()->first.first <= until) step();
  now_ = until;
  check();
}

bool World::chance(double probability) {
  return chance_ && std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

std::int64_t World::delay_ms(std::int64_t plain) {
  if (!chance_) return plain;
  if (chance(0.06)) return std::uniform_int_distribution<std::int64_t>(500, 8'000)(random_);
  return std::uniform_int_distribution<std::int64_t>(0, 4 * plain + 20)(random_);
}

// ---- commands ----
void World::migrate() {
  hosts_.at(kCoordinator).machine = begin(info_, now_);
  feed(kCoordinator, CoordinatorEvent(MigrateRequested{}));
}

void World::abort_migration() {
  if (is_up(kCoordinator)) feed(kCoordinator, CoordinatorEvent(AbortRequested(reason_of("asked for"))));
}

void World::crash(const Party& party) {
  Host& host = hosts_.at(party);
  if (!host.up || host.lost) return;
  note(party, "crash");
  host.up = false;
  ++host.life;
  host.machine = std::monostate{};
  // A mover exits with its agent.
  if (party.role == Role::kSource || party.role == Role::kTarget) break_session(party.rank);
}

void World::lose_records() {
  if (journals_.at(kCoordinator).empty()) return;
  crash(kCoordinator);
  note(kCoordinator, "its journal is lost");
  journals_.at(kCoordinator).clear();
  ++lost_records_;
}

void World::restart(const Party& party) {
  Host& host = hosts_.at(party);
  if (host.up || host.lost) return;
  note(party, "restart");
  host.up = true;
  revive(party);
}

void World::revive(const Party& party) {
  auto& journal = journals_.at(party);
  while (!journal.empty() && is_forgotten(journal.back())) journal.pop_back();
  if (!journal.empty()) return create(party, false);
  if (party == kCoordinator) return lost_records_ > 0 ? recover_coordinator_by_ranks() : void();
  // A rank without a record continues, and a standby without a record is ended.
  if (party.role == Role::kTarget)
    end_instance(party, false);
  else
    resume_rank(party);
}

// Recovers the move from the ranks. A rank reports the move if its agent knows the move. If no agent knows
// the move, the move does not exist.
void World::recover_coordinator_by_ranks() {
  const auto knows = [this](const Party& party) {
    return party != kCoordinator && (!journals_.at(party).empty() ||
                                     !std::holds_alternative<std::monostate>(hosts_.at(party).machine));
  };
  const std::vector<Party> all = everyone();
  if (std::none_of(all.begin(), all.end(), knows)) {
    hosts_.at(kCoordinator).machine = begin(info_, now_);
    return feed(kCoordinator, CoordinatorEvent(MigrateRequested{}));
  }
  hosts_.at(kCoordinator).machine = recover_coordinator(info_, now_);
  feed(kCoordinator, CoordinatorEvent(Restarted{}));
}

// Sends the agent's statements and their end marker one after the other, or breaks the connection.
void World::answer_in_one_piece(const Party& party) {
  std::vector<Body> stated;
  to_coordinator_ = &stated;
  deliver(kCoordinator, party, Query{});
  to_coordinator_ = nullptr;
  if (!is_up(party) || chance(0.05) || has_more_to_state(party)) return;
  after_ms(delay_ms(1), [this, party, stated, life = hosts_.at(kCoordinator).life] {
    if (hosts_.at(kCoordinator).life != life || !reaches(party, kCoordinator)) return;
    for (const Body& body : stated) deliver(party, kCoordinator, body);
    feed(kCoordinator, CoordinatorEvent(PartyAnswered(party)));
  });
}

// Returns whether the party waits for the end of its instance, and states nothing until then.
bool World::has_more_to_state(const Party& party) const {
  return std::visit(
      [](const auto& state) {
        using State = std::decay_t<decltype(state)>;
        if constexpr (std::is_constructible_v<PartyState, State>)
          return is_ending(PartyState(state));
        else
          return false;
      },
      hosts_.at(party).machine);
}

// Returns whether the record is lost through the driver's mistake, if any: the written record was not
// durable.
bool World::is_forgotten(const Record& record) const {
  switch (options_.mutant) {
    case Mutant::kReadyNotDurable:
      return record.kind == RecordKind::kReady;
    case Mutant::kHeldNotDurable:
      return record.kind == RecordKind::kHeld;
    case Mutant::kStillNotDurable:
      return record.kind == RecordKind::kHeldStill;
    case Mutant::kReturnNotDurable:
      return record.kind == RecordKind::kReturned;
    default:
      return false;
  }
}

// Creates the machine of a party. `is_new`: the party knew nothing of the migration.
void World::create(const Party& party, bool is_new) {
  const auto& journal = journals_.at(party);
  const Record* newest = journal.empty() ? nullptr : &journal.back();
  Machine& machine = hosts_.at(party).machine;
  switch (party.role) {
    case Role::kCoordinator:
      machine = restore_coordinator(*newest).value();
      feed(party, CoordinatorEvent(Restarted{}));
      if (options_.mutant == Mutant::kLeaseForgotten)
        if (auto* state = std::get_if<CoordinatorState>(&machine)) state->earlier_leases_until = 0;
      return;
    case Role::kSource:
      machine = restore_source(info_, party.rank, newest).value();
      return feed(party, is_new ? SourceEvent(PrepareReceived{}) : SourceEvent(Restarted{}));
    case Role::kTarget:
      machine = restore_target(info_, party.rank, newest).value();
      return feed(party, is_new ? TargetEvent(PrepareReceived{}) : TargetEvent(Restarted{}));
    case Role::kBystander:
      machine = restore_bystander(info_, party.rank, newest).value();
      return feed(party, is_new ? BystanderEvent(PrepareReceived{}) : BystanderEvent(Restarted{}));
  }
}

void World::lose(const Party& party) {
  if (is_lost(party)) return;
  crash(party);
  note(party, "lost");
  hosts_.at(party).lost = true;
  end_instance(party, true);
}

void World::prove_lost(const Party& party) {
  if (!is_lost(party) || !is_up(kCoordinator)) return;
  check();
  lost_later_ |= was_settled_;
  feed(kCoordinator, CoordinatorEvent(PartyLost(party)));
}

void World::kill_instance(const Party& party) {
  const Instance& instance = instances_.at(party);
  if (party.role != Role::kTarget || is_lost(party) || !instance.image || instance.finished) return;
  note(party, "instance dies");
  if (instance.running && options_.mutant == Mutant::kEndsLate)
    ++faults_;
  else
    end_instance(party, true);
  feed_later(party, TargetEvent(InstanceDied(reason_of("killed"))), 1);
}

void World::finish(const Party& party) {
  Instance& instance = instances_.at(party);
  if (party.role != Role::kTarget || is_lost(party) || !instance.running) return;
  note(party, "program ends");
  instance.running = false;
  instance.finished = true;
  instance.deadline.reset();
  feed_later(party, end_of(party), 1);
}

TargetEvent World::end_of(const Party& party) {
  if (options_.mutant != Mutant::kFinishedIsDead) return InstanceFinished(info_.base + 1);
  end_instance(party, false);
  return InstanceDied(reason_of("its process has ended"));
}

void World::end_instance(const Party& party, bool by_fault) {
  if (by_fault) ++faults_;
  if (by_fault && was_settled_) lost_later_ = true;
  instances_.at(party) = Instance{};
}

void World::cut(const Party& a, const Party& b, bool is_cut) {
  for (const auto& link : {std::pair(a, b), std::pair(b, a)}) {
    if (is_cut)
      cuts_.insert(link);
    else
      cuts_.erase(link);
  }
  const bool movers =
      a.rank == b.rank && a.role != b.role && a.role != Role::kCoordinator && b.role != Role::kCoordinator;
  if (is_cut && movers) break_session(a.rank);
}

void World::cut_off(const Party& party, bool is_cut) {
  for (const Party& other : everyone())
    if (other != party) cut(party, other, is_cut);
}

void World::faults_end() {
  chance_ = false;
  cuts_.clear();
  failing_.clear();
  held_names_.clear();
  for (const Party& party : everyone()) restart(party);
  run_for(30'000);  // settles everything that needs no operator
  for (const Party& party : info_.ranks()) prove_lost(party);
}

// ---- the driver ----
template <class Event>
void World::feed(const Party& party, const Event& event) {
  Host& host = hosts_.at(party);
  if (!host.up || host.lost) return;
  const auto take = [&](auto& state) {
    auto done = gang::step(state, event, now_, options_.timing);
    if (!done.has_value()) return violate(done.error().message());
    const auto before = std::move(state);
    state = std::move(done->state);
    const std::vector<Action> actions = std::move(done->actions);
    const std::uint64_t life = host.life;
    for (const Action& action : actions) {
      if (execute_one(party, action)) {
        if (host.life != life) return;  // the host has crashed in between
        continue;
      }
      // The record was refused: the state reverts, and the remaining actions are dropped.
      state = before;
      return feed_later(party, Event(RecordFailed(reason_of("the disk is full"))), 0);
    }
  };
  if constexpr (std::is_same_v<Event, CoordinatorEvent>) {
    if (auto* state = std::get_if<CoordinatorState>(&host.machine)) take(*state);
  } else if constexpr (std::is_same_v<Event, SourceEvent>) {
    if (auto* state = std::get_if<SourceState>(&host.machine)) take(*state);
  } else if constexpr (std::is_same_v<Event, TargetEvent>) {
    if (auto* state = std::get_if<TargetState>(&host.machine)) take(*state);
  } else {
    if (auto* state = std::get_if<BystanderState>(&host.machine)) take(*state);
  }
}

template <class Event>
void World::feed_later(const Party& party, Event event, std::int64_t ms) {
  after_ms(ms, [this, party, event = std::move(event), life = hosts_.at(party).life] {
    if (hosts_.at(party).life == life) feed(party, event);
  });
}

// Executes one action. Returns false if the record was refused.
bool World::execute_one(const Party& party, const Action& action) {
  if (chance(0.002)) {
    crash(party);
    return true;
  }
  const std::uint32_t rank = party.rank;
  std::visit(Overload{
                 [&](const Send& send) { transmit(party, send.to, send.body); },
                 [&](const ArmTimer& timer) { arm(party, timer.timer, timer.ms); },
                 [&](const DisarmTimer& timer) {
                   timers_.erase({party, timer.timer});
                 },
                 [&](const PrepareSource&) {
                   if (chance(0.02))
                     feed_later(party, SourceEvent(SourceRefused(reason_of("refused"))), 1);
                   else
                     feed_later(party, SourceEvent(SourceReady(Bytes{})), delay_ms(5));
                 },
                 [&](const StartPrecopy&) {
                   sessions_[rank] = order_++;
                   run_rounds(party);
                 },
                 [&](const HoldRank&) { hold_rank(party); },
                 [&](const ReleaseManifest&) { release_manifest(party); },
                 [&](const StopCopy&) { break_session(rank); },
                 [&](const ResumeRank&) { resume_rank(party); },
                 [&](const FreeSource&) { end_instance(party, false); },
                 [&](const EndRank&) { end_as_ordered(party); },
                 [&](const PrepareStandby&) {
                   if (chance(0.02))
                     return feed_later(party, TargetEvent(StandbyRefused(reason_of("refused"))), 1);
                   instances_.at(party).alive = true;
                   instances_.at(party).has_new_communicators = info_.overlaps;
                   feed_later(party, TargetEvent(StandbyReady(Bytes{})), delay_ms(5));
                 },
                 [&](const EnterGate& enter) { enter_gate(party, enter.k); },
                 [&](const OpenGate& open) { open_gate(party, open); },
                 [&](const FreeTarget&) {
                   if (options_.mutant != Mutant::kEndsLate || !instances_.at(party).running)
                     end_as_ordered(party);
                   else
                     feed_ended(party);
                 },
                 [&](const PrepareRank&) { feed_later(party, BystanderEvent(RankReady{}), delay_ms(5)); },
                 [&](const PrepareCommunicators&) { join(party); },
                 [&](const DiscardCommunicators&) { give_up_communicators(party); },
                 [&](const SwapEpoch&) {
                   Instance& instance = instances_.at(party);
                   if (!instance.alive) return;
                   instance.held = instance.hold_wanted = false;
                   instance.running = instance.in_new = true;
                   instance.has_old_communicators = false;
                   if (!instance.has_new_communicators)
                     violate(to_text(party) + " swaps to no communicators");
                 },
                 [&](const RestoreGang&) { restored_ = true; },
                 [&](const auto&) {},
             },
             action);
  if (const auto* record = std::get_if<WriteRecord>(&action)) return write(party, record->record);
  return true;
}

bool World::write(const Party& party, const Record& record) {
  if (failing_.erase(party) != 0 && record.kind != RecordKind::kBegun) return false;
  note(party, name_of(record));
  if (record.kind == RecordKind::kRestored) check_restore(record);
  // The coordinator may have decided on the report of an owner that died right after the report.
  const auto& journal = journals_.at(party);
  const bool owned = !journal.empty() && journal.back().owner;
  lost_later_ |= record.kind == RecordKind::kRelinquished && (was_settled_ || owned);
  journals_.at(party).push_back(record);
  old_passed_ |= record.kind == RecordKind::kNever || record.kind == RecordKind::kResumed ||
                 record.kind == RecordKind::kOld;
  if (chance(0.01)) crash(party);
  return true;
}

void World::arm(const Party& party, Timer timer, std::uint32_t ms) {
  const std::uint64_t number = timers_[{party, timer}] = next_timer_++;
  after_ms(ms, [this, party, timer, number, life = hosts_.at(party).life] {
    const auto at = timers_.find({party, timer});
    if (at == timers_.end() || at->second != number || hosts_.at(party).life != life) return;
    timers_.erase(at);
    switch (party.role) {
      case Role::kCoordinator:
        return feed(party, CoordinatorEvent(TimerFired(timer)));
      case Role::kSource:
        return feed(party, SourceEvent(TimerFired(timer)));
      case Role::kTarget:
        return feed(party, TargetEvent(TimerFired(timer)));
      case Role::kBystander:
        return feed(party, BystanderEvent(TimerFired(timer)));
    }
  });
}

// ---- messages ----
bool World::reaches(const Party& from, const Party& to) const {
  if (is_lost(to)) return false;
  if (!cuts_.contains({from, to})) return true;
  // Agents also reach each other through the coordinator.
  return from != kCoordinator && to != kCoordinator && is_up(kCoordinator) &&
         !cuts_.contains({from, kCoordinator}) && !cuts_.contains({kCoordinator, to});
}

// Returns how many journals a coordinator has lost. Messages of a coordinator from before the last loss do
// not arrive.
std::uint64_t World::memory_of(const Party& from) const {
  return from == kCoordinator ? lost_records_ : 0;
}

void World::transmit(const Party& from, const Party& to, const Body& body) {
  if (to == kCoordinator && to_coordinator_ != nullptr) return to_coordinator_->push_back(body);
  const bool is_held =
      held_names_.contains(name_of(body)) || held_names_.contains(name_to(name_of(body), to));
  if (!reaches(from, to) || chance(0.05) || is_held) return;
  const int copies = chance(0.03) ? 2 : 1;
  const auto* asking =
      from == kCoordinator ? std::get_if<CoordinatorState>(&hosts_.at(from).machine) : nullptr;
  const bool asks = asking != nullptr && phase_name(*asking) == "ASKING";
  const std::uint64_t sender = memory_of(from);
  for (int i = 0; i < copies; ++i)
    after_ms(delay_ms(1), [this, from, to, body, asks, sender] {
      if (!reaches(from, to) || memory_of(from) != sender) return;
      if (asks && std::holds_alternative<Query>(body)) return answer_in_one_piece(to);
      deliver(from, to, body);
    });
}

void World::deliver(const Party& from, const Party& to, const Body& body) {
  Host& host = hosts_.at(to);
  if (!host.up || host.lost) return;
  note(to, std::string(name_of(body)) + " of " + to_text(from));
  if (std::holds_alternative<std::monostate>(host.machine)) {
    if (to == kCoordinator) return;
    // The host does not know this migration: Prepare begins the migration, and any other message ends it.
    return create(to, std::holds_alternative<Prepare>(body));
  }
  const Message message(from, body);
  switch (to.role) {
    case Role::kCoordinator:
      feed(to, CoordinatorEvent(message));
      if (from.role == Role::kBystander && options_.mutant == Mutant::kRestoreUnfenced)
        feed(to, CoordinatorEvent(Message(from, Fenced{})));
      return;
    case Role::kSource:
      if (options_.mutant == Mutant::kReleaseAtGo && std::holds_alternative<Ran>(body) &&
          from.rank == to.rank)
        return feed(to, SourceEvent(Message(Party(Role::kBystander, 9), Gone(2))));
      if (const auto* gone = std::get_if<Relinquished>(&body);
          options_.mutant == Mutant::kRelinquishedIsVeto && gone != nullptr)
        return feed(to, SourceEvent(Message(from, Relinquished(true, gone->reason))));
      return feed(to, SourceEvent(message));
    case Role::kTarget:
      return feed(to, TargetEvent(message));
    case Role::kBystander:
      if (std::holds_alternative<Committed>(body) && options_.mutant == Mutant::kSwapAtCommitted)
        return feed(to, BystanderEvent(Message(from, Go(2))));
      if (std::holds_alternative<Committed>(body) && options_.mutant == Mutant::kOldAbortedEarly)
        instances_.at(to).has_old_communicators = false;
      return feed(to, BystanderEvent(message));
  }
}

// The instantiations for events that other files of the world feed.
template void World::feed(const Party& party, const SourceEvent& event);
template void World::feed(const Party& party, const TargetEvent& event);
template void World::feed(const Party& party, const BystanderEvent& event);
template void World::feed_later(const Party& party, SourceEvent event, std::int64_t ms);
template void World::feed_later(const Party& party, TargetEvent event, std::int64_t ms);
template void World::feed_later(const Party& party, BystanderEvent event, std::int64_t ms);

}  // namespace ckpt::gang::test
