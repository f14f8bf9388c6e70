// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/libckpt/protocol/handover/switch_world.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace ckpt::migration::test {
namespace {

const char* const kNodeNames[] = {"A", "B", "C"};

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

}  // namespace

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

// Reports the open switches of an agent that connects.
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

namespace {
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
             if (standby == instances_.end()) return;  // the standby died; its InstanceDied is on the way
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
