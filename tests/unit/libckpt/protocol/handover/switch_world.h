// SPDX-License-Identifier: Apache-2.0
// A small world for the switch: two nodes and a coordinator, with the real AgentHandovers and
// CoordinatorHandovers inside. It has journals that survive crashes, keepers that enforce leases, a network,
// clocks and one job. Discrete events, one thread, deterministic for a seed. The fuzz test lets chance play;
// the scenario test decides what happens.
//
// Mutant names a deliberate mistake that the world's driver makes, so that the checks can be shown to find
// it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "libckpt/protocol/handover/agent_handovers.h"
#include "libckpt/protocol/handover/coordinator_handovers.h"

namespace ckpt::migration::test {

enum class Mutant {
  kNone,
  kFinalFirst,         // the final manifest leaves before BARRIER is durable
  kNoTombstone,        // RELINQUISHED for an unknown migration is sent, not recorded
  kCAbortsAlone,       // the coordinator aborts after GRANTED without asking the target
  kFreeAtCommit,       // the source frees when it receives COMMITTED
  kLateRuns,           // the source frees on any RUNS of the migration
  kRunsBeforeRecord,   // the target runs before COMMITTED is durable
  kNoFence,            // the keeper does not stop the job at the deadline
  kCForgetsLease,      // a restarted coordinator does not wait for leases it had given
  kTrustsOldStore,     // a coordinator with an older copy of its store takes it for the whole
  kLendsUnremembered,  // a source that waits lends, and may take a grant all the same
  kForgetsItsLoan,     // a restarted source does not wait for what it may have lent
};

inline constexpr int kCoordinatorNode = 2;
inline constexpr JobId kJob = 1;

// An instance that a keeper holds on one node: at most one process of the job may run, beside one standby.
struct Instance {
  bool image = false;  // its memory is the job's
  bool open = false;   // the gate
  Incarnation k = 0;
  std::optional<Nanos> deadline;
  bool finished = false;  // its program has ended by itself, with exit code 0
};

class World {
 public:
  struct Options {
    std::uint64_t seed = 1;
    bool chance = false;  // delays, losses, repeats and crashes by chance
    Mutant mutant = Mutant::kNone;
    Timing timing;
  };
  explicit World(Options options);

  // ---- commands ----
  MigrationId migrate(int from, int to);  // 0 if refused
  void abort_migration(MigrationId id, bool timeout = false);
  void resolve(MigrationId id, Side side);
  void crash(int node);  // the process (agent or coordinator) ends; what it had not yet executed is gone
  void crash_after(int node, std::string action);  // once, right behind the next action described so
  void restart(int node);
  // The coordinator ends; when it is back, its journal is as it was `records` records ago (all: it is empty).
  void lose_store(std::size_t records);
  void lose(int node);  // the node, its journal and its instances are gone for good
  void kill_instance(int node);
  void finish_instance(
      int node);  // of the last migration: its program ends with exit code 0, before the target is the owner
  void cut(int a, int b, bool is_cut);
  void refuse_next(int node) { refusing_[node] = true; }  // the next PrepareSource or PrepareStandby there
  void fail_records(int node, int count);                 // the next appends fail cleanly
  void hold(std::string body_name);                       // messages of that name wait until release_held()
  void release_held();
  void feed(MigrationId id, Role role, SourceEvent event);
  void feed(MigrationId id, Role role, TargetEvent event);
  void inject(const wire::CommitMessage& message);
  void pause_job(int node);                      // the ranks stand at the barrier
  void give_image(int node, MigrationId id);     // the final manifest arrived
  void set_auto(bool on) { auto_engine_ = on; }  // engine and keeper answer by themselves

  bool step();  // one event; false when none is left
  void run_for(std::int64_t ms);
  void faults_end();  // all links whole, all living processes up, nothing by chance any more

  // ---- what is the case ----
  [[nodiscard]] Nanos now() const { return now_; }
  [[nodiscard]] int running() const;
  [[nodiscard]] bool runs_on(int node) const;
  [[nodiscard]] bool lost(int node) const { return lost_[node]; }
  [[nodiscard]] bool up(int node) const { return up_[node] && !lost_[node]; }
  [[nodiscard]] const Instance* instance(int node, MigrationId id) const;
  [[nodiscard]] const Instance* owner_instance(int node) const;
  [[nodiscard]] std::string first_violation() const { return violation_; }
  [[nodiscard]] bool goal() const;
  [[nodiscard]] bool job_dead() const { return job_dead_; }
  [[nodiscard]] std::string summary() const;
  [[nodiscard]] AgentHandovers* agent(int node) { return agents_[node].get(); }
  [[nodiscard]] CoordinatorHandovers* coordinator() { return coordinator_.get(); }
  [[nodiscard]] int node_of(MigrationId id, Role role) const;
  std::vector<std::string> take_trace() { return std::exchange(trace_, {}); }
  void trace_on(bool on) { tracing_ = on; }
  std::mt19937_64& random() { return random_; }
  [[nodiscard]] MigrationId last_migration() const { return next_id_ - 1; }
  [[nodiscard]] int job_node() const { return job_node_; }  // where the last closed migration left it
  [[nodiscard]] const std::vector<Record>& journal(int node) const { return journals_[node]; }
  [[nodiscard]] Incarnation highest_run() const { return highest_run_; }
  // How long the coordinator's journal was when it found that it had forgotten a migration.
  [[nodiscard]] const std::map<MigrationId, std::size_t>& forgotten() const { return forgotten_; }

 private:
  struct Place {
    int source;
    int target;
  };
  struct Pending {  // actions of one process still to be executed
    Batches batches;
  };
  void at(Nanos when, std::function<void()> what);
  void after_ms(std::int64_t ms, std::function<void()> what) { at(now_ + ms * kNanosPerMs, std::move(what)); }
  std::int64_t delay_ms(std::int64_t plain);
  bool chance(double probability);
  void execute(int node, Result<Batches> batches);
  bool execute_one(int node, const Batch& batch, const Action& action);
  bool write(int node, const Record& record);
  void send(int node, const Batch& batch, const Send& send);
  void transmit(int from_node, int to_node, const wire::CommitMessage& message);
  void deliver(int from_node, int to_node, const wire::CommitMessage& message);
  void arm(int node, HandoverKey key, Timer timer, std::uint32_t ms);
  void run_instance(int node, const Batch& batch, const RunInstance& action);
  void free_instance(int node, HandoverKey key);
  void engine(int node, const Batch& batch, const Action& action);
  void link_lost(int node);
  void notify_coordinator(int node, bool connected);
  void report_handovers(int node);
  void recover(MigrationId id, Role role);
  [[nodiscard]] Incarnation base_of_next() const;
  [[nodiscard]] bool of_a_lost_connection(int from_node, int to_node, std::uint64_t coordinator_life) const;
  void later(int node, HandoverKey key, SourceEvent event, std::int64_t ms);
  void later(int node, HandoverKey key, TargetEvent event, std::int64_t ms);
  void on_source(int node, HandoverKey key, const SourceEvent& event);
  void on_target(int node, HandoverKey key, const TargetEvent& event);
  void release_manifest(int node, HandoverKey key);
  void check();
  void check_image_left(int before);
  void violate(const std::string& what);
  void note(int node, const std::string& what);
  [[nodiscard]] bool is_on(const Instance& instance) const;
  [[nodiscard]] int images() const;

  Options options_;
  std::mt19937_64 random_;
  Nanos now_ = 1'000'000'000;
  std::uint64_t order_ = 0;
  std::map<std::pair<Nanos, std::uint64_t>, std::function<void()>> events_;
  std::unique_ptr<AgentHandovers> agents_[2];
  std::unique_ptr<CoordinatorHandovers> coordinator_;
  std::vector<Record> journals_[3];
  bool up_[3] = {true, true, true};
  bool lost_[3] = {};
  std::uint64_t life_[3] = {};
  int failing_records_[3] = {};
  bool refusing_[3] = {};
  std::string crash_after_[3];
  bool cut_[3][3] = {};
  std::map<std::pair<int, MigrationId>, Instance> instances_;  // migration 0: the job as it was started
  std::map<MigrationId, Place> places_;
  std::map<MigrationId, std::uint64_t> target_preparation_;  // the mover session of the target; 0: none
  std::map<MigrationId, std::uint64_t> source_session_;
  std::uint64_t next_session_ = 1;
  std::map<std::tuple<int, HandoverKey, Timer>, std::uint64_t> timers_;
  std::uint64_t next_timer_ = 1;
  std::set<std::string> held_names_;
  std::vector<std::function<void()>> held_;
  std::set<MigrationId> ran_target_;
  std::map<MigrationId, std::size_t> forgotten_;
  MigrationId next_id_ = 1;
  int job_node_ = 0;
  Incarnation highest_run_ = 1;
  bool job_dead_ = false;
  Incarnation finished_as_ = 0;  // 0: the job has not finished
  bool instance_died_ = false;
  bool auto_engine_ = true;
  bool chance_ = false;
  bool tracing_ = false;
  bool store_lost_ = false;
  std::string violation_;
  std::vector<std::string> trace_;
};

}  // namespace ckpt::migration::test
