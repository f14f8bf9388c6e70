// SPDX-License-Identifier: Apache-2.0
// The ranks of the world in gang_world.h: their holds, copies, communicators and gates.
#include <algorithm>

#include "tests/unit/libckpt/protocol/gang/gang_world.h"

namespace ckpt::gang::test {

void World::hold_rank(const Party& party) {
  instances_.at(party).hold_wanted = true;
  const auto slow = holds_ms_.find(party);
  after_ms(slow == holds_ms_.end() ? delay_ms(10) : slow->second, [this, party] {
    Instance& instance = instances_.at(party);
    if (!instance.alive || !instance.hold_wanted) return;
    instance.hold_wanted = instance.running = false;
    instance.held = true;
    if (party.role == Role::kSource)
      feed(party, SourceEvent(RankHeld{}));
    else
      feed(party, BystanderEvent(RankHeld{}));
  });
}

void World::resume_rank(const Party& party) {
  Instance& instance = instances_.at(party);
  if (!instance.alive) return;
  instance.hold_wanted = instance.held = false;
  instance.running = true;
}

void World::end_as_ordered(const Party& party) {
  if (options_.mutant == Mutant::kStatedBeforeEnd) feed_ended(party);
  const auto slow = ends_ms_.find(party);
  if (slow == ends_ms_.end()) {
    end_instance(party, false);
    return feed_ended(party);
  }
  // The order is repeated. The first one ends the instance, also where the agent crashes in the meantime.
  after_ms(slow->second, [this, party] {
    end_instance(party, false);
    feed_ended(party);
  });
}

void World::feed_ended(const Party& party) {
  switch (party.role) {
    case Role::kSource:
      return feed_later(party, SourceEvent(RankEnded{}), 0);
    case Role::kTarget:
      return feed_later(party, TargetEvent(RankEnded{}), 0);
    case Role::kBystander:
      return feed_later(party, BystanderEvent(RankEnded{}), 0);
    case Role::kCoordinator:
      return;
  }
}

// Runs the rounds of a source. Nothing arrives before the target takes part.
void World::run_rounds(const Party& source) {
  after_ms(delay_ms(20), [this, source, session = sessions_[source.rank]] {
    const auto* state = std::get_if<TargetState>(&hosts_.at({Role::kTarget, source.rank}).machine);
    if (sessions_[source.rank] != session) return;
    if (state == nullptr || phase_name(*state) != "RECEIVING") return run_rounds(source);
    feed(source, SourceEvent(FirstRoundDone{}));
    feed_later(source, SourceEvent(PrecopyConverged{}), delay_ms(20));
  });
}

// Releases the final manifest: the target has the whole image when the manifest arrives.
void World::release_manifest(const Party& source) {
  const std::uint32_t rank = source.rank;
  const Party target(Role::kTarget, rank);
  const std::uint64_t session = sessions_[rank];
  const auto slow = last_copies_ms_.find(rank);
  const std::int64_t copy_ms = slow == last_copies_ms_.end() ? delay_ms(10) : slow->second;
  after_ms(copy_ms, [this, source, target, rank, session] {
    if (sessions_[rank] != session || !is_up(target) || is_lost(target)) return;
    const auto* state = std::get_if<TargetState>(&hosts_.at(target).machine);
    const std::string_view phase = state == nullptr ? "" : phase_name(*state);
    if (phase == "STANDBY") return release_manifest(source);  // the target does not take part yet
    if (phase != "RECEIVING" || !instances_.at(target).alive) return;
    instances_.at(target).image = true;
    feed(target, TargetEvent(FinalVerified{}));
    feed(source, SourceEvent(FinalDataAcknowledged{}));
  });
}

void World::break_session(std::uint32_t rank) {
  if (sessions_[rank] == 0) return;
  sessions_[rank] = 0;
  feed_later({Role::kSource, rank}, SourceEvent(EngineFailed(reason_of("the other side is gone"))),
             delay_ms(5));
  feed_later({Role::kTarget, rank}, TargetEvent(EngineFailed(reason_of("the other side is gone"))),
             delay_ms(5));
}

template <class Event>
void World::feed_of_communicators(const Party& party, Event event, std::int64_t ms) {
  if (party.role == Role::kTarget)
    feed_later(party, TargetEvent(std::move(event)), ms);
  else
    feed_later(party, BystanderEvent(std::move(event)), ms);
}

void World::join(const Party& party) {
  if (chance(0.02)) return feed_of_communicators(party, CommunicatorsFailed(reason_of("refused")), 1);
  Instance& instance = instances_.at(party);
  if (!instance.alive) return feed_of_communicators(party, CommunicatorsFailed(reason_of("it is gone")), 1);
  instance.joins = true;
  if (options_.mutant == Mutant::kNotMadeYet) feed_of_communicators(party, CommunicatorsReady{}, 0);
  after_ms(options_.communicators_ms, [this, party, life = hosts_.at(party).life] {
    if (hosts_.at(party).life == life && !instances_.at(party).has_new_communicators)
      feed_of_communicators(party, CommunicatorsFailed(reason_of("not in time")), 0);
  });
  make_communicators();
}

// Creates the communicators once all members take part. If creation overlaps with the copy, standbys must
// take part before they are ready.
void World::make_communicators() {
  std::vector<Party> members;
  for (const Party& party : info_.ranks())
    if (party.role == Role::kBystander || (party.role == Role::kTarget && !info_.overlaps))
      members.push_back(party);
  const auto joins = [this](const Party& party) {
    return instances_.at(party).alive && (instances_.at(party).joins || info_.overlaps);
  };
  if (!makes_communicators_ || !std::all_of(members.begin(), members.end(), joins)) return;
  after_ms(delay_ms(20), [this, members] {
    for (const Party& party : members) {
      Instance& instance = instances_.at(party);
      if (!instance.alive || !instance.joins) continue;
      instance.has_new_communicators = true;
      feed_of_communicators(party, CommunicatorsReady{}, delay_ms(1));
    }
  });
}

void World::give_up_communicators(const Party& party) {
  instances_.at(party).joins = instances_.at(party).has_new_communicators = false;
}

void World::enter_gate(const Party& party, Incarnation k) {
  if (options_.mutant == Mutant::kGoEarly) feed_later(party, TargetEvent(RankInGate(k)), 0);
  after_ms(delay_ms(5), [this, party, k, life = hosts_.at(party).life] {
    if (hosts_.at(party).life != life) return;
    Instance& instance = instances_.at(party);
    if (instance.image && !instance.in_gate && std::exchange(fails_resume_, false)) {
      ++failed_resumes_;
      end_instance(party, false);
    }
    if (!instance.image) return feed(party, TargetEvent(InstanceDied(reason_of("it is gone"))));
    if (instance.finished) return feed(party, end_of(party));
    instance.in_gate = true;
    feed(party, TargetEvent(RankInGate(k)));
    if (instance.running) feed(party, TargetEvent(InstanceRuns(k)));
  });
}

void World::open_gate(const Party& party, const OpenGate& action) {
  Instance& instance = instances_.at(party);
  if (!instance.image || !instance.in_gate || instance.finished) return;
  const bool late = action.deadline && *action.deadline <= now_;
  if (late && options_.mutant != Mutant::kNoFence) return;
  if (!instance.has_new_communicators) violate(to_text(party) + " runs without communicators");
  const bool began = !instance.running;
  instance.running = instance.in_new = true;
  ran_.insert(party.rank);
  instance.deadline = options_.mutant == Mutant::kNoFence ? std::nullopt : action.deadline;
  if (began) feed_later(party, TargetEvent(InstanceRuns(action.k)), 0);
  if (!instance.deadline) return;
  at(*instance.deadline, [this, party, k = action.k] {
    Instance& stopping = instances_.at(party);
    if (!stopping.running || !stopping.deadline || *stopping.deadline > now_) return;
    stopping.running = false;
    feed(party, TargetEvent(InstanceStopped(k)));
  });
}

}  // namespace ckpt::gang::test
