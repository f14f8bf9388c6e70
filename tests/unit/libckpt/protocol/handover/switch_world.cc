// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/libckpt/protocol/handover/switch_world.h"

#include <algorithm>
#include <tuple>

namespace ckpt::migration::test {

World::World(Options options) : options_(options), random_(options.seed), chance_(options.chance) {
  for (auto& agent : agents_) agent = std::make_unique<AgentHandovers>(options_.timing);
  coordinator_ = std::make_unique<CoordinatorHandovers>(options_.timing);
  instances_[{0, 0}] = Instance{true, true, 1, std::nullopt};
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
  if (chance(0.08)) return std::uniform_int_distribution<std::int64_t>(500, 20'000)(random_);
  return std::uniform_int_distribution<std::int64_t>(0, 4 * plain + 20)(random_);
}

// ---- commands ----
int World::node_of(MigrationId id, Role role) const {
  if (role == Role::kCoordinator) return kCoordinatorNode;
  const Place& place = places_.at(id);
  return role == Role::kSource ? place.source : place.target;
}

MigrationId World::migrate(int from, int to) {
  if (!up(kCoordinatorNode) || coordinator_->open_of(kJob) != nullptr || finished_as_ != 0) return 0;
  const Incarnation base = base_of_next();
  if (base == 0) return 0;
  const MigrationId id = next_id_++;
  places_[id] = {from, to};
  note(kCoordinatorNode, "migrate " + std::to_string(id));
  HandoverInfo info(id, kJob, base, {RankPlace(0, kNodeNames[from], "0", kNodeNames[to], "0")}, Bytes{});
  execute(kCoordinatorNode, coordinator_->begin(std::move(info), up(from), up(to), now_));
  return id;
}

// Returns the incarnation that the job runs as, from the coordinator's record, otherwise from its owner's
// report. 0: unknown.
Incarnation World::base_of_next() const {
  if (next_id_ == 1) return 1;
  const MigrationId last = next_id_ - 1;
  if (const auto* previous = coordinator_->find(last)) return owner_incarnation(*previous);
  if (!store_lost_) return 0;
  const Place& place = places_.at(last);
  const auto* s = up(place.source) ? agents_[place.source]->source(last) : nullptr;
  const auto* t = up(place.target) ? agents_[place.target]->target(last) : nullptr;
  if (const auto* owner = s != nullptr ? std::get_if<source::Owner>(&s->phase) : nullptr) return owner->k;
  const auto* committed = t != nullptr ? std::get_if<target::Committed>(&t->phase) : nullptr;
  return committed != nullptr && committed->owner ? committed->k : 0;
}

void World::abort_migration(MigrationId id, bool timeout) {
  if (!up(kCoordinatorNode) || coordinator_->find(id) == nullptr) return;
  const auto* state = coordinator_->find(id);
  if (options_.mutant == Mutant::kCAbortsAlone &&
      std::holds_alternative<coordinator::Granted>(state->phase)) {
    Record record(state->info, Role::kCoordinator, RecordKind::kClosed, state->info.base);
    record.side = 1;
    journals_[kCoordinatorNode].push_back(record);
    crash(kCoordinatorNode);
    restart(kCoordinatorNode);
    return;
  }
  execute(kCoordinatorNode, coordinator_->on_event(
                                id, AbortRequested(timeout, Reason(ErrorCode::kAborted, "asked for")), now_));
}

void World::resolve(MigrationId id, Side side) {
  if (up(kCoordinatorNode))
    execute(kCoordinatorNode, coordinator_->on_event(id, ResolveRequested(side), now_));
}

void World::crash(int node) {
  if (!up(node)) return;
  note(node, "crash");
  up_[node] = false;
  ++life_[node];
  if (node == kCoordinatorNode) {
    coordinator_.reset();
    return;
  }
  agents_[node].reset();
  link_lost(node);
  notify_coordinator(node, false);
}

void World::crash_after(int node, std::string action) {
  crash_after_[node] = std::move(action);
}

void World::lose_store(std::size_t records) {
  crash(kCoordinatorNode);
  auto& journal = journals_[kCoordinatorNode];
  journal.resize(journal.size() - std::min(records, journal.size()));
  std::erase_if(forgotten_, [&](const auto& entry) { return entry.second > journal.size(); });
  store_lost_ = true;
  note(kCoordinatorNode, "store lost, " + std::to_string(journal.size()) + " records left");
}

// Reports the open handovers of an agent that connects.
void World::report_handovers(int node) {
  if (!store_lost_ || !up(node) || !up(kCoordinatorNode) || cut_[node][kCoordinatorNode]) return;
  for (const auto& [id, place] : places_) {
    const auto* s = place.source == node ? agents_[node]->source(id) : nullptr;
    const auto* t = place.target == node ? agents_[node]->target(id) : nullptr;
    if (s != nullptr && !is_closed(*s)) recover(id, Role::kSource);
    if (t != nullptr && !is_closed(*t)) recover(id, Role::kTarget);
  }
}

void World::recover(MigrationId id, Role role) {
  const int node = node_of(id, role);
  if (!up(kCoordinatorNode) || !up(node) || coordinator_->find(id) != nullptr) return;
  const auto* s = role == Role::kSource ? agents_[node]->source(id) : nullptr;
  const auto* t = role == Role::kTarget ? agents_[node]->target(id) : nullptr;
  if (s == nullptr && t == nullptr) return;
  const HandoverInfo& info = s != nullptr ? s->info : t->info;
  if (info.ranks.empty()) return;  // the migration is only a tombstone
  note(kCoordinatorNode, "recovers " + std::to_string(id));
  execute(kCoordinatorNode, coordinator_->recover(info, now_));
}

void World::restart(int node) {
  if (lost_[node] || up_[node]) return;
  note(node, "restart");
  up_[node] = true;
  if (node == kCoordinatorNode) {
    coordinator_ = std::make_unique<CoordinatorHandovers>(options_.timing);
    const bool hasty = options_.mutant == Mutant::kCForgetsLease ||
                       (store_lost_ && options_.mutant == Mutant::kTrustsOldStore);
    const Nanos then = hasty ? now_ - 3600 * 1000 * kNanosPerMs : now_;
    // Discards findings whose decision is not in the journal. A finding that still applies is made again.
    std::erase_if(forgotten_, [this](const auto& entry) {
      const auto& journal = journals_[kCoordinatorNode];
      return std::none_of(journal.begin() + static_cast<std::ptrdiff_t>(entry.second), journal.end(),
                          [&](const Record& r) { return r.info.migration == entry.first; });
    });
    execute(node, coordinator_->restore(journals_[node], then));
    for (const int agent : {0, 1})
      after_ms(delay_ms(5), [this, agent, life = life_[node]] {
        if (life_[kCoordinatorNode] == life) report_handovers(agent);
      });
    return;
  }
  Timing timing = options_.timing;
  if (options_.mutant == Mutant::kForgetsItsLoan) timing.lend_term_ms = timing.lease_drift_ms = 0;
  agents_[node] = std::make_unique<AgentHandovers>(timing);
  // Standbys without a record end with the agent that started them.
  std::erase_if(instances_, [&](const auto& entry) {
    const auto& [where, instance] = entry;
    if (where.first != node || where.second == 0) return false;
    return std::none_of(journals_[node].begin(), journals_[node].end(), [&](const Record& r) {
      return r.info.migration == where.second && r.party == Role::kTarget && r.kind == RecordKind::kCommitted;
    });
  });
  execute(node, agents_[node]->restore(journals_[node], now_));
  if (!up(node)) return;
  for (auto& [where, instance] : instances_)
    if (where.first == node && !instance.open && instance.image && !instance.deadline &&
        agents_[node]->may_run_freely(kJob, instance.k))
      instance.open = true;
  for (const auto& [id, place] : places_) {
    const auto* target = place.target == node ? agents_[node]->target(id) : nullptr;
    if (target && holds_job(*target) && instance(node, id) == nullptr)
      later(node, {id, Role::kTarget},
            TargetEvent(InstanceDied(Reason(ErrorCode::kAborted, "gone at start"))), 1);
  }
  notify_coordinator(node, true);
  report_handovers(node);
}

void World::notify_coordinator(int node, bool connected) {
  for (const auto& [id, place] : places_)
    for (const Side side : {Side::kSource, Side::kTarget}) {
      if ((side == Side::kSource ? place.source : place.target) != node) continue;
      // The coordinator may crash in between.
      if (!up(kCoordinatorNode) || coordinator_->find(id) == nullptr) continue;
      execute(kCoordinatorNode, connected ? coordinator_->on_event(id, AgentConnected(side), now_)
                                          : coordinator_->on_event(id, AgentDisconnected(side), now_));
    }
}

void World::lose(int node) {
  if (lost_[node]) return;
  crash(node);
  note(node, "lost");
  const int before = images();
  lost_[node] = true;
  std::erase_if(instances_, [&](const auto& entry) { return entry.first.first == node; });
  check_image_left(before);
}

void World::kill_instance(int node) {
  for (auto it = instances_.rbegin(); it != instances_.rend(); ++it) {
    const auto [where, id] = it->first;
    if (where != node || id == 0) continue;
    const auto newest = [&](Role party) {
      const Record* found = nullptr;
      for (const Record& r : journals_[node_of(id, party)])
        if (r.info.migration == id && r.party == party) found = &r;
      return found;
    };
    const Record* committed = newest(Role::kTarget);
    if (committed && committed->owner) return;
    const Record* source = newest(Role::kSource);
    if (source && source->kind == RecordKind::kReleased) job_dead_ = true;
    note(node, "instance dies");
    instance_died_ = true;
    const int before = images();
    instances_.erase(it->first);
    check_image_left(before);
    later(node, {id, Role::kTarget}, TargetEvent(InstanceDied(Reason(ErrorCode::kAborted, "killed"))), 1);
    return;
  }
}

void World::finish_instance(int node) {
  const MigrationId id = last_migration();
  const auto it = instances_.find({node, id});
  if (id == 0 || it == instances_.end() || !is_on(it->second) || finished_as_ != 0) return;
  const auto owns = [id](const Record& r) {
    return r.info.migration == id && r.party == Role::kTarget && r.owner;
  };
  if (std::any_of(journals_[node].begin(), journals_[node].end(), owns)) return;
  note(node, "instance finishes");
  it->second.finished = true;
  it->second.open = false;
  finished_as_ = it->second.k;
  later(node, {id, Role::kTarget}, TargetEvent(InstanceFinished(finished_as_)), 1);
}

void World::cut(int a, int b, bool is_cut) {
  cut_[a][b] = cut_[b][a] = is_cut;
  if (is_cut && a != kCoordinatorNode && b != kCoordinatorNode) link_lost(a);
  if (!is_cut && (a == kCoordinatorNode || b == kCoordinatorNode))
    report_handovers(a == kCoordinatorNode ? b : a);
}

void World::fail_records(int node, int count) {
  failing_records_[node] = count;
}
void World::hold(std::string body_name) {
  held_names_.insert(std::move(body_name));
}
void World::release_held() {
  held_names_.clear();
  for (auto& what : std::exchange(held_, {})) at(now_, std::move(what));
}

void World::pause_job(int node) {
  for (auto& [where, instance] : instances_)
    if (where.first == node && instance.image) instance.open = false;
}
void World::give_image(int node, MigrationId id) {
  if (const auto it = instances_.find({node, id}); it != instances_.end()) it->second.image = true;
}

void World::faults_end() {
  chance_ = false;
  for (auto& row : cut_)
    for (bool& is_cut : row) is_cut = false;
  for (int& count : failing_records_) count = 0;
  for (const int node : {kCoordinatorNode, 0, 1}) restart(node);
  for (const int node : {0, 1}) report_handovers(node);
  release_held();
}

void World::feed(MigrationId id, Role role, SourceEvent event) {
  on_source(node_of(id, role), {id, role}, event);
  check();
}
void World::feed(MigrationId id, Role role, TargetEvent event) {
  on_target(node_of(id, role), {id, role}, event);
  check();
}
void World::inject(const wire::CommitMessage& message) {
  deliver(-1, node_of(message.migration, message.to.role), message);
  check();
}

// ---- a driver, as in driver.md ----
void World::execute(int node, Result<Batches> batches) {
  if (!batches.has_value()) {
    note(node, "error: " + batches.error().message());
    return;
  }
  const std::uint64_t life = life_[node];
  for (const Batch& batch : *batches) {
    for (const Action& action : batch.actions) {
      if (life_[node] != life || !up(node)) return;
      note(node, describe(action));
      if (!execute_one(node, batch, action)) {
        const Reason full(ErrorCode::kRefused, "disk full");
        execute(node, node == kCoordinatorNode ? coordinator_->record_failed(batch.key, full, now_)
                                               : agents_[node]->record_failed(batch.key, full, now_));
        break;
      }
      const bool asked = !crash_after_[node].empty() && describe(action).starts_with(crash_after_[node]);
      if (asked) crash_after_[node].clear();
      if (life_[node] == life && (asked || chance(0.004))) crash(node);
    }
  }
}

bool World::execute_one(int node, const Batch& batch, const Action& action) {
  if (const auto* a = std::get_if<Send>(&action)) {
    send(node, batch, *a);
  } else if (const auto* w = std::get_if<WriteRecord>(&action)) {
    if (options_.mutant == Mutant::kRunsBeforeRecord && w->record.kind == RecordKind::kCommitted) {
      run_instance(node, batch, RunInstance(w->record.k, std::nullopt));
      if (chance(0.3)) {
        crash(node);
        return true;
      }
    }
    return write(node, w->record);
  } else if (const auto* t = std::get_if<ArmTimer>(&action)) {
    arm(node, batch.key, t->timer, t->ms);
  } else if (const auto* d = std::get_if<DisarmTimer>(&action)) {
    timers_.erase({node, batch.key, d->timer});
  } else if (const auto* r = std::get_if<RunInstance>(&action)) {
    run_instance(node, batch, *r);
  } else if (const auto* report = std::get_if<Report>(&action)) {
    if (node == kCoordinatorNode && report->kind == ReportKind::kClosedTarget)
      job_node_ = places_[batch.key.migration].target;
    if (report->kind == ReportKind::kForgotten)
      forgotten_[batch.key.migration] = journals_[kCoordinatorNode].size();
  } else {
    engine(node, batch, action);
  }
  return true;
}

bool World::write(int node, const Record& record) {
  if (failing_records_[node] > 0) {
    --failing_records_[node];
    return false;
  }
  if (chance(0.002)) return false;
  const auto again = decode_record(encode_record(record));
  if (!again.has_value() || !(*again == record)) violate("a record does not survive its encoding");
  journals_[node].push_back(record);
  return true;
}

void World::arm(int node, HandoverKey key, Timer timer, std::uint32_t ms) {
  const std::uint64_t number = next_timer_++;
  timers_[{node, key, timer}] = number;
  after_ms(ms, [this, node, key, timer, number, life = life_[node]] {
    const auto it = timers_.find({node, key, timer});
    if (life_[node] != life || !up(node) || it == timers_.end() || it->second != number) return;
    timers_.erase(it);
    if (key.role == Role::kCoordinator)
      execute(node, coordinator_->on_event(key.migration, TimerFired(timer), now_));
    else if (key.role == Role::kSource)
      on_source(node, key, TimerFired(timer));
    else
      on_target(node, key, TimerFired(timer));
  });
}

// ---- network ----
void World::send(int node, const Batch& batch, const Send& send) {
  const int to = node_of(batch.key.migration, send.to);
  const wire::CommitMessage message(batch.info.migration, batch.info.job, batch.info.base, send.from, send.to,
                                    send.body);
  if (node != kCoordinatorNode && to != kCoordinatorNode && cut_[node][to]) {
    // The message goes through the coordinator instead.
    if (up(kCoordinatorNode) && !cut_[node][kCoordinatorNode] && !cut_[kCoordinatorNode][to])
      transmit(kCoordinatorNode, to, message);
    return;
  }
  transmit(node, to, message);
}

void World::transmit(int from_node, int to_node, const wire::CommitMessage& message) {
  if (chance(0.06)) return;
  const int copies = chance(0.15) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    auto arrive = [this, from_node, to_node, message, life = life_[kCoordinatorNode]] {
      if (!of_a_lost_connection(from_node, to_node, life)) deliver(from_node, to_node, message);
    };
    if (held_names_.contains(std::string(wire::name_of(message.body))))
      held_.push_back(arrive);
    else
      after_ms(delay_ms(1), arrive);
  }
}

// Returns whether the message belongs to a connection that ended with the coordinator. If the coordinator's
// store survives, the protocol does not need this rule.
bool World::of_a_lost_connection(int from_node, int to_node, std::uint64_t coordinator_life) const {
  return store_lost_ && (from_node == kCoordinatorNode || to_node == kCoordinatorNode) &&
         life_[kCoordinatorNode] != coordinator_life;
}

void World::deliver(int from_node, int to_node, const wire::CommitMessage& original) {
  if (!up(to_node) || (from_node >= 0 && from_node != to_node && cut_[from_node][to_node])) return;
  auto decoded = wire::decode_commit(wire::encode_commit(original));
  if (!decoded.has_value()) {
    violate("an honest message is refused: " + decoded.error().message());
    return;
  }
  wire::CommitMessage message = *std::move(decoded);
  if (to_node == kCoordinatorNode) {
    if (store_lost_) recover(message.migration, message.from.role);
    if (!up(kCoordinatorNode)) return;
    execute(to_node, coordinator_->on_message(message, now_));
    return;
  }
  AgentHandovers& agent = *agents_[to_node];
  if (options_.mutant == Mutant::kNoTombstone && message.to.role == Role::kTarget &&
      agent.target(message.migration) == nullptr && !std::holds_alternative<wire::Prepare>(message.body)) {
    Batch batch{{message.migration, Role::kTarget},
                HandoverInfo(message.migration, message.job, message.base, {}, {}),
                {}};
    send(to_node, batch, Send(Role::kTarget, Role::kSource, wire::Relinquished{}));
    return;
  }
  const auto* asks = std::get_if<wire::LeaseRequest>(&message.body);
  if (options_.mutant == Mutant::kLendsUnremembered && asks != nullptr) {
    const Batch batch{{message.migration, Role::kSource},
                      HandoverInfo(message.migration, message.job, message.base, {}, {}),
                      {}};
    send(to_node, batch,
         Send(Role::kSource, Role::kTarget,
              wire::Lease(asks->k, asks->sent_at_ns, options_.timing.lend_term_ms)));
    return;
  }
  if (message.to.role == Role::kSource) {
    const auto* committed = std::get_if<wire::Committed>(&message.body);
    if (options_.mutant == Mutant::kFreeAtCommit && committed) message.body = wire::Ran(committed->k);
    const auto* runs = std::get_if<wire::Ran>(&message.body);
    if (options_.mutant == Mutant::kLateRuns && runs) message.body = wire::Ran(message.base + 1001);
  }
  execute(to_node, agent.on_message(message, now_));
}

}  // namespace ckpt::migration::test
