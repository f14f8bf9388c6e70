// SPDX-License-Identifier: Apache-2.0
// Acts on findings: cordons the GPU if the finding requests it, and moves each job that is concerned. That
// includes jobs that arrive later, as long as the finding stands (policies/evacuation/findings.h); moves that
// are under way to the GPU are canceled. How each job is moved is decided in policies/evacuation/attempts.h.
//
// A finding and its consequences are stored in one transaction. Each step of an evacuation is stored before
// it is taken. A coordinator that was killed neither repeats nor forgets a decision. The breaker and the cap
// per job (evacuation.h) count the stored evacuations.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: a
// failure is an evacuation's note and an event.
#pragma once

#include <map>
#include <set>

#include "coordinator/gangs/moves/job_moves.h"
#include "coordinator/health/evacuation_table.h"
#include "coordinator/health/health.h"
#include "coordinator/images/images.h"
#include "coordinator/policies/evacuation/attempts.h"

namespace ckpt::coordinator {

class Evacuations {
 public:
  struct Dependencies {
    const Config& config;
    EventLog& events;
    JobTable& jobs;
    MigrationTable& migrations;
    MigrationRunner& migration_runner;
    CordonTable& cordons;
    HealthTable& health;
    PolicyTable& policy;
    const Planner& planner;
    JobMoves& moves;
    Images& images;
    EvacuationTable& table;
    control::asio::any_io_executor executor;
  };
  explicit Evacuations(Dependencies deps);

  // Continues the open evacuations. Call this once, after load() of all tables.
  void start();
  // Retries the waiting evacuations, because a node has sent a new inventory.
  void on_inventory();

  [[nodiscard]] std::uint32_t recent() const;
  [[nodiscard]] const EvacuationLimits& limits() const { return limits_; }

 private:
  control::Task<> run();
  void step();

  void begin_evacuations(const Finding& finding);
  [[nodiscard]] std::vector<Evacuation> concerned(const Finding& finding) const;
  // These functions are in arrivals.cc.
  void doubt_images(const Finding& finding);
  void take_in_arrivals();
  [[nodiscard]] std::vector<Evacuation> arrivals_at(const Finding& finding) const;
  void give_up_moves_to(const Finding& finding);
  Result<void> store(const Finding& finding, std::vector<Evacuation> decided, bool paused = false);

  void reconcile(Evacuation& evacuation);
  void start_next();
  // These functions are in evacuation_attempts.cc.
  void attempt(Evacuation& evacuation);
  void carry_out(Evacuation& evacuation, const EvacuationStep& step);
  void attempt_live(Evacuation& evacuation);
  void begin_live(Evacuation& evacuation, const Job& job, const PlanHints& hints, const JobMovePlan& plan);
  void attempt_restore(Evacuation& evacuation);
  control::Task<> restore(EvacuationId id, Place to);
  control::Task<> park(EvacuationId id, bool snapshot);
  [[nodiscard]] MigrateRequest live_request(const Evacuation& evacuation, const Job& job) const;
  [[nodiscard]] ClusterFacts facts() const;

  void wait(Evacuation& evacuation, const std::string& note);
  void enter(Evacuation& evacuation, EvacuationState state, const std::string& note);
  void wake();

  Dependencies deps_;
  EvacuationLimits limits_;
  std::map<EvacuationId, std::uint64_t> tried_at_;  // the value of generation_ at each evacuation's last
                                                    // failed attempt
  std::set<MigrationId> given_up_;                  // migrations for which this coordinator has already
                                                    // requested a cancellation
  std::uint64_t generation_ = 1;
  std::uint64_t wakes_ = 0;
  Signal wake_;
};

}  // namespace ckpt::coordinator
