// SPDX-License-Identifier: Apache-2.0
// Acts on findings: cordons the GPU where the finding requests it, and moves each job that is concerned. A
// job moves live where its memory can be read, else it is restored from its newest image, else it is parked.
// A job is never killed: what is not possible is left as it is, and said.
//
// A finding and its consequences are stored in one transaction, and each step of an evacuation before it is
// taken. A coordinator that was killed neither repeats nor forgets a decision. The breaker and the cap per
// job (evacuation.h) are counted from what is stored.
// Threads: one io_context on one thread. Ownership: evacuations live here, and of those that are over as many
// as forget_old() leaves. Borrows its parts, which outlive it. Errors: what fails is an evacuation's note and
// an event.
#pragma once

#include <map>
#include <set>

#include "coordinator/health/evacuation.h"
#include "coordinator/health/health.h"
#include "coordinator/images/images.h"
#include "coordinator/operations/service.h"

namespace ckpt::coordinator {

class Evacuations {
 public:
  struct Parts {
    const Config& config;
    Store& store;
    EventLog& events;
    JobTable& jobs;
    MigrationTable& migrations;
    CordonTable& cordons;
    HealthTable& health;
    PolicyTable& policy;
    Service& service;
    control::asio::any_io_executor executor;
  };
  explicit Evacuations(Parts parts);
  // Null (as at first): there are no images.
  void set_images(Images* images) { images_ = images; }

  Result<void> load();
  // Takes up what was open; once, after load() of everything.
  void start();
  // A node said what it has.
  void on_inventory();

  [[nodiscard]] const std::map<EvacuationId, Evacuation>& all() const { return evacuations_; }
  // Removes those that are over and need not stay.
  void forget_old(const Retention& keep);
  [[nodiscard]] std::uint32_t recent() const;
  [[nodiscard]] const EvacuationLimits& limits() const { return limits_; }

 private:
  control::Task<> run();
  void step();

  void begin_evacuations(const Finding& finding);
  [[nodiscard]] std::vector<Evacuation> concerned(const Finding& finding) const;
  [[nodiscard]] bool died_of(const Job& job, const Finding& finding) const;
  Result<void> keep(const Finding& finding, std::vector<Evacuation> decided);

  void reconcile(Evacuation& evacuation);
  void start_next();
  void attempt(Evacuation& evacuation);
  void attempt_live(Evacuation& evacuation, const Job& job);
  void attempt_restore(Evacuation& evacuation, const Job& job);
  void after_live(Evacuation& evacuation, const Migration& migration);
  void no_target(Evacuation& evacuation, const std::string& why, bool job_runs);
  void park(Evacuation& evacuation, bool snapshot);
  control::Task<> restore(EvacuationId id, Place to);
  control::Task<> rest(EvacuationId id, bool snapshot);
  [[nodiscard]] bool may_start(Evacuation& evacuation);
  [[nodiscard]] PlanHints hints_for(const Evacuation& evacuation) const;
  [[nodiscard]] std::vector<const Evacuation*> pointers() const;

  void wait(Evacuation& evacuation, const std::string& note);
  void enter(Evacuation& evacuation, EvacuationState state, const std::string& note);
  void save(const Evacuation& evacuation);
  Result<void> remove(const std::vector<EvacuationId>& ids);
  void wake();

  Parts parts_;
  EvacuationLimits limits_;
  Images* images_ = nullptr;
  std::map<EvacuationId, Evacuation> evacuations_;
  std::set<EvacuationId> open_;
  std::map<EvacuationId, std::uint64_t> tried_at_;  // generation_ of the last attempt that came to nothing
  std::uint64_t generation_ = 1;
  std::uint64_t wakes_ = 0;
  Signal wake_;
};

}  // namespace ckpt::coordinator
