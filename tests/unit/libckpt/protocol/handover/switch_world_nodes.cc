// SPDX-License-Identifier: Apache-2.0
// The keepers and the movers of the world in switch_world.h.
#include <algorithm>
#include <cstring>

#include "tests/unit/libckpt/protocol/handover/switch_world.h"

namespace ckpt::migration::test {
namespace {

Bytes session_bytes(std::uint64_t session) {
  Bytes bytes(sizeof session);
  std::memcpy(bytes.data(), &session, sizeof session);
  return bytes;
}

std::uint64_t session_of(const Bytes& bytes) {
  std::uint64_t session = 0;
  if (bytes.size() == sizeof session) std::memcpy(&session, bytes.data(), sizeof session);
  return session;
}

// Returns the instance that a migration moves: the newest instance that an earlier migration (or the start)
// left on the node.
std::map<std::pair<int, MigrationId>, Instance>::iterator source_instance(
    std::map<std::pair<int, MigrationId>, Instance>& instances, int node, MigrationId id) {
  auto it = instances.lower_bound({node, id});
  if (it == instances.begin()) return instances.end();
  --it;
  return it->first.first == node ? it : instances.end();
}

}  // namespace

// ---- keeper ----
bool World::is_on(const Instance& instance) const {
  if (!instance.open) return false;
  return !instance.deadline || now_ < *instance.deadline || options_.mutant == Mutant::kNoFence;
}

const Instance* World::instance(int node, MigrationId id) const {
  const auto it = instances_.find({node, id});
  return it == instances_.end() ? nullptr : &it->second;
}

// Returns the instance that runs, or ran last, on a node.
const Instance* World::owner_instance(int node) const {
  const Instance* found = nullptr;
  for (const auto& [where, instance] : instances_)
    if (where.first == node && instance.image) found = &instance;
  return found;
}

void World::run_instance(int node, const Batch& batch, const RunInstance& action) {
  const MigrationId id = batch.key.migration;
  const bool source = batch.key.role == Role::kSource;
  const auto it = source ? source_instance(instances_, node, id) : instances_.find({node, id});
  if (it == instances_.end()) {
    const InstanceDied died(Reason(ErrorCode::kNotFound, "no such process"));
    source ? later(node, batch.key, SourceEvent(died), 1) : later(node, batch.key, TargetEvent(died), 1);
    return;
  }
  Instance& instance = it->second;
  if (instance.finished && !source) return later(node, batch.key, TargetEvent(InstanceFinished(action.k)), 1);
  // After a lost node or an expired lease no side can know that the job has finished. The instance then runs
  // as a later incarnation.
  if (action.k <= finished_as_ && !lost_[1 - node]) violate("a job that has finished is run again");
  if (action.deadline && *action.deadline <= now_) return;
  if (!instance.image) violate("an instance without the job's image is run");
  instance.open = true;
  instance.k = action.k;
  instance.deadline = action.deadline;
  highest_run_ = std::max(highest_run_, action.k);
  if (!source) ran_target_.insert(id);
  const InstanceRuns runs(action.k);
  source ? later(node, batch.key, SourceEvent(runs), 1) : later(node, batch.key, TargetEvent(runs), 1);
  if (!action.deadline) return;
  at(*action.deadline, [this, node, key = batch.key, where = it->first, deadline = *action.deadline] {
    const auto found = instances_.find(where);
    if (found == instances_.end() || found->second.deadline != deadline || !found->second.open) return;
    if (options_.mutant == Mutant::kNoFence) return;
    found->second.open = false;
    const InstanceStopped stopped(found->second.k);
    key.role == Role::kSource ? later(node, key, SourceEvent(stopped), 1)
                              : later(node, key, TargetEvent(stopped), 1);
  });
}

void World::free_instance(int node, HandoverKey key) {
  const bool source = key.role == Role::kSource;
  const auto it =
      source ? source_instance(instances_, node, key.migration) : instances_.find({node, key.migration});
  if (it == instances_.end()) return;
  const bool was_image = it->second.image;
  if (is_on(it->second)) violate("a running instance is freed on " + std::string(kNodeNames[node]));
  instances_.erase(it);
  if (!was_image || images() > 0) return;
  // A side may free its image only after the other side was seen to run, or was lost with its node or
  // process.
  const bool other_gone = lost_[1 - node] || instance_died_;
  if (!other_gone) violate("the last image is freed on " + std::string(kNodeNames[node]));
}

// Checks that an image is left. A source that freed its image for a target that never ran has lost the job.
void World::check_image_left(int before) {
  if (before == 0 || images() > 0 || places_.empty()) return;
  const auto [id, place] = *places_.rbegin();
  const bool released =
      std::any_of(journals_[place.source].begin(), journals_[place.source].end(),
                  [&](const Record& r) { return r.info.migration == id && r.kind == RecordKind::kReleased; });
  if (released && !ran_target_.contains(id))
    violate("the last image is gone, the target never ran and the other was freed");
}

int World::images() const {
  return static_cast<int>(std::count_if(instances_.begin(), instances_.end(),
                                        [](const auto& entry) { return entry.second.image; }));
}

// ---- engine ----
void World::later(int node, HandoverKey key, SourceEvent event, std::int64_t ms) {
  after_ms(delay_ms(ms), [this, node, key, event, life = life_[node]] {
    if (life_[node] == life) on_source(node, key, event);
  });
}
void World::later(int node, HandoverKey key, TargetEvent event, std::int64_t ms) {
  after_ms(delay_ms(ms), [this, node, key, event, life = life_[node]] {
    if (life_[node] == life) on_target(node, key, event);
  });
}
void World::on_source(int node, HandoverKey key, const SourceEvent& event) {
  if (up(node)) execute(node, agents_[node]->on_event(key, event, now_));
}
void World::on_target(int node, HandoverKey key, const TargetEvent& event) {
  if (up(node)) execute(node, agents_[node]->on_event(key, event, now_));
}

void World::engine(int node, const Batch& batch, const Action& action) {
  const HandoverKey key = batch.key;
  const MigrationId id = key.migration;
  const Reason unlucky(ErrorCode::kDevice, "by chance");
  if (std::holds_alternative<FreeSource>(action) || std::holds_alternative<FreeTarget>(action)) {
    if (key.role == Role::kTarget) target_preparation_.erase(id);
    free_instance(node, key);
  } else if (std::holds_alternative<StopCopy>(action)) {
    source_session_.erase(id);
  } else if (std::holds_alternative<PrepareStandby>(action)) {
    instances_[{node, id}] = Instance{};
    const std::uint64_t session = next_session_++;
    target_preparation_[id] = session;
    if (!auto_engine_) return;
    const bool refuse = std::exchange(refusing_[node], false) || chance(0.03);
    refuse ? later(node, key, TargetEvent(StandbyRefused(unlucky)), 5)
           : later(node, key, TargetEvent(StandbyReady(session_bytes(session))), 5);
  } else if (std::holds_alternative<StartReceiving>(action)) {
    if (chance(0.02)) later(node, key, TargetEvent(EngineFailed(unlucky)), 100);
  } else if (const auto* start = std::get_if<StartPrecopy>(&action)) {
    source_session_[id] = session_of(start->peer_payload);
    if (!auto_engine_) return;
    if (chance(0.03)) {
      later(node, key, SourceEvent(EngineFailed(unlucky)), 30);
      return;
    }
    later(node, key, SourceEvent(FirstRoundDone{}), 20);
    later(node, key, SourceEvent(PrecopyConverged{}), 40);
  } else if (std::holds_alternative<PrepareSource>(action)) {
    if (!auto_engine_) return;
    const auto it = source_instance(instances_, node, id);
    const bool here = it != instances_.end() && it->second.image && it->second.k == batch.info.base;
    const bool refuse = std::exchange(refusing_[node], false) || chance(0.03) || !here;
    !refuse ? later(node, key, SourceEvent(SourceReady(Bytes{})), 2)
            : later(node, key, SourceEvent(SourceRefused(unlucky)), 2);
  } else if (std::holds_alternative<PauseJob>(action)) {
    if (!auto_engine_ || chance(0.05)) return;
    after_ms(delay_ms(5), [this, node, key, life = life_[node]] {
      const auto it = source_instance(instances_, node, key.migration);
      // StopCopy withdraws a pause that no rank has answered.
      if (it == instances_.end() || life_[node] != life || !source_session_.contains(key.migration)) return;
      it->second.open = false;
      later(node, key, SourceEvent(JobPaused{}), 1);
    });
  } else if (std::holds_alternative<RunFinalRound>(action)) {
    if (options_.mutant == Mutant::kFinalFirst) release_manifest(node, key);
  } else if (std::holds_alternative<ReleaseManifest>(action)) {
    if (options_.mutant != Mutant::kFinalFirst) release_manifest(node, key);
  }
}

void World::release_manifest(int node, HandoverKey key) {
  const MigrationId id = key.migration;
  const int target = places_[id].target;
  const auto failed = [this, node, key] {
    later(node, key, SourceEvent(EngineFailed(Reason(ErrorCode::kUnavailable, "link lost"))), 1);
  };
  if (!auto_engine_) return;
  if (!source_session_.contains(id) || chance(0.03)) {
    failed();
    return;
  }
  after_ms(delay_ms(2),
           [this, node, key, id, target, failed, session = source_session_[id], life = life_[node]] {
             const auto it = target_preparation_.find(id);
             const auto* state = up(target) ? agents_[target]->target(id) : nullptr;
             if (cut_[node][target] || it == target_preparation_.end() || it->second != session || !state ||
                 !std::holds_alternative<target::Receiving>(state->phase)) {
               if (life_[node] == life) failed();
               return;
             }
             const auto standby = instances_.find({target, id});
             if (standby == instances_.end())
               return;  // the standby died, and its event InstanceDied is
                        // still to be delivered
             standby->second.image = true;
             later(target, {id, Role::kTarget}, TargetEvent(FinalVerified{}), 1);
             if (life_[node] == life) later(node, key, SourceEvent(FinalDataAcknowledged{}), 1);
           });
}

// Reports that the movers of a node have exited, or that its link to the other node is lost.
void World::link_lost(int node) {
  const EngineFailed failed(Reason(ErrorCode::kUnavailable, "peer gone"));
  for (const auto& [id, place] : places_) {
    if (place.source == node || place.target == node) {
      if (source_session_.erase(id) != 0 && up(place.source))
        later(place.source, {id, Role::kSource}, SourceEvent(failed), 3);
      if (target_preparation_.erase(id) != 0 && up(place.target))
        later(place.target, {id, Role::kTarget}, TargetEvent(failed), 3);
    }
  }
}

}  // namespace ckpt::migration::test
