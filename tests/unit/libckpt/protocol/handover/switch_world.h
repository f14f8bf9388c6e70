// SPDX-License-Identifier: Apache-2.0
// A small world for the handover: two nodes and a coordinator, with the real AgentHandovers and
// CoordinatorHandovers inside. It has journals that survive crashes, keepers that enforce leases, a network,
// clocks and one job. Events are discrete and run on one thread; a seed determines them. The fuzz test draws
// events at random; the scenario test decides what happens.
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
  kFinalFirst,         // the final manifest is sent before BARRIER is durable
  kNoTombstone,        // RELINQUISHED for an unknown migration is sent, not recorded
  kCAbortsAlone,       // the coordinator aborts after GRANTED without querying the target
  kFreeAtCommit,       // the source frees its memory when it receives COMMITTED
  kLateRuns,           // the source frees its memory on any RUNS of the migration
  kRunsBeforeRecord,   // the target runs before COMMITTED is durable
  kNoFence,            // the keeper does not stop the job at the deadline
  kCForgetsLease,      // a restarted coordinator does not wait for leases that it had granted
  kTrustsOldStore,     // a coordinator with an older copy of its store treats this copy as complete
  kLendsUnremembered,  // a waiting source lends a lease, and still may accept a grant
  kForgetsItsLoan,     // a restarted source does not wait for a lease that it may have lent
};

inline constexpr int kCoordinatorNode = 2;
inline constexpr const char* kNodeNames[] = {"A", "B", "C"};
inline constexpr JobId kJob = 1;

// An instance that a keeper holds on one node. At most one process of the job may run, next to one standby.
struct Instance {
  bool image = false;  // true if the instance's memory is the job's image
  bool open = false;   // whether the gate is open
  Incarnation k = 0;
  std::optional<Nanos> deadline;
  bool finished = false;  // true once the instance's program has exited on its own with exit code 0
};

class World {
 public:
  struct Options {
    std::uint64_t seed = 1;
    bool chance = false;  // true: delays, losses, repeats and crashes occur at random
    Mutant mutant = Mutant::kNone;
    Timing timing;
  };
  explicit World(Options options);

  // ---- commands ----
  MigrationId migrate(int from, int to);  // returns 0 if the migration is refused
  void abort_migration(MigrationId id, bool timeout = false);
  void resolve(MigrationId id, Side side);
  void crash(int node);  // ends the process (agent or coordinator) and drops its pending actions
  void crash_after(int node, std::string action);  // crashes once, directly after the next action with this
                                                   // description
  void restart(int node);
  // Ends the coordinator and removes the last `records` records of its journal. The restarted coordinator
  // reads the shorter journal; with all records removed, the journal is empty.
  void lose_store(std::size_t records);
  void lose(int node);  // permanently removes the node, its journal and its instances
  void kill_instance(int node);
  void finish_instance(
      int node);  // exits the program of the last migration's instance with code 0, before the target is the
                  // owner
  void cut(int a, int b, bool is_cut);
  void refuse_next(int node) {
    refusing_[node] = true;
  }                                        // refuses the next PrepareSource or PrepareStandby
                                           // on the node
  void fail_records(int node, int count);  // makes the next appends fail cleanly
  void hold(std::string body_name);        // delays messages with this name until release_held()
  void release_held();
  void feed(MigrationId id, Role role, SourceEvent event);
  void feed(MigrationId id, Role role, TargetEvent event);
  void inject(const wire::CommitMessage& message);
  void pause_job(int node);                      // brings the ranks to the barrier
  void give_image(int node, MigrationId id);     // delivers the final manifest
  void set_auto(bool on) { auto_engine_ = on; }  // engine and keeper answer automatically

  bool step();  // runs one event; false when no event is left
  void run_for(std::int64_t ms);
  void faults_end();  // repairs all links, starts all living processes, and stops random faults

  // ---- state ----
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
  [[nodiscard]] int job_node() const {
    return job_node_;
  }  // the node on which the last closed migration
     // left the job
  [[nodiscard]] const std::vector<Record>& journal(int node) const { return journals_[node]; }
  [[nodiscard]] Incarnation highest_run() const { return highest_run_; }
  // Returns for each forgotten migration how long the coordinator's journal was when the coordinator found
  // the gap.
  [[nodiscard]] const std::map<MigrationId, std::size_t>& forgotten() const { return forgotten_; }

 private:
  struct Place {
    int source;
    int target;
  };
  struct Pending {  // actions of one process that are still to be executed
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
  std::map<std::pair<int, MigrationId>, Instance> instances_;  // migration 0 is the job as it was started
  std::map<MigrationId, Place> places_;
  std::map<MigrationId, std::uint64_t> target_preparation_;  // the target's mover session; 0: none
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
  Incarnation finished_as_ = 0;  // the incarnation in which the job has finished; 0: not finished
  bool instance_died_ = false;
  bool auto_engine_ = true;
  bool chance_ = false;
  bool tracing_ = false;
  bool store_lost_ = false;
  std::string violation_;
  std::vector<std::string> trace_;
};

}  // namespace ckpt::migration::test
