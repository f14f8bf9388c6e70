// SPDX-License-Identifier: Apache-2.0
// The steps by which one job is evacuated. It moves live where its memory can be read, to one target after the other.
// Else it goes on from its newest image, else it is parked; it is never killed. Pure: each function takes an
// evacuation and the facts, changes the evacuation's own record, and returns what to do next.
// Threads: one. Errors: none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/policies/evacuation/evacuation.h"
#include "coordinator/policies/job_move_plan.h"
#include "coordinator/state/restored.h"
#include "libckpt/base/result.h"

namespace ckpt::coordinator {

// The facts that an attempt begins with.
struct EvacuationView {
  const Job* job = nullptr;         // null: it was removed
  const Migration* open = nullptr;  // of the job
  bool is_paused = false;           // the policy of its node
  bool is_breaker_open = false;
  std::int64_t forgiven_ms = 0;
  std::vector<const Evacuation*> all;
  std::int64_t now_ms = 0;
};

// The next step of an evacuation.
struct EvacuationStep {
  enum class Kind : std::uint8_t {
    kWait,         // until something changes
    kEnter,        // `state`
    kAbortMove,    // `migration`, if there is one; and wait for its end
    kOpenBreaker,  // for `reason`; and wait
    kLive,         // look for a target of a live move
    kBeginLive,    // to the plan's place
    kImage,        // look for an image, and a GPU for it
    kBeginRestore,
    kPark,
  };
  // When a job is tried again: kAtOnce also without a change.
  enum class Again : std::uint8_t { kAsItWas, kAtOnce, kAtChange };
  Kind kind = Kind::kWait;
  EvacuationState state = EvacuationState::kQueued;
  std::string note;
  MigrationId migration = 0;
  std::string reason;
  bool makes_way = false;  // an image of the job that is under way is given up if there is a place for it
  bool snapshot = false;   // kPark: an image is made of it first
  Again again = Again::kAsItWas;
};

// Returns the step with which an attempt begins.
[[nodiscard]] EvacuationStep begin_attempt(Evacuation& e, const EvacuationView& view,
                                           const EvacuationLimits& limits);

// The facts about the cluster that decide where nothing can take the job.
struct ClusterFacts {
  bool may_come_back = false;  // nodes whose GPUs are not known yet
  bool are_away = false;       // nodes that are not connected
};

// Returns the step before a target of a live move is looked for; nullopt: look. `is_preparing`: a move of the job is.
[[nodiscard]] std::optional<EvacuationStep> before_live_plan(Evacuation& e, bool is_preparing,
                                                             const ClusterFacts& facts,
                                                             const EvacuationLimits& limits);
// `plan`: of a live move, without the places of live_hints().
[[nodiscard]] EvacuationStep after_live_plan(Evacuation& e, const Result<JobMovePlan>& plan,
                                             const ClusterFacts& facts);
// The places that the evacuation shall not go to.
[[nodiscard]] ClosedScopes closed_for(const Evacuation& e);
// `migration`: of the evacuation, and over.
[[nodiscard]] EvacuationStep after_live(Evacuation& e, const Migration& migration);

// For a job without an image that a connected node can read.
[[nodiscard]] EvacuationStep without_image(Evacuation& e, const Job& job, const ClusterFacts& facts);
// `to`: where its image can be restored; none: nowhere, for `reason`.
[[nodiscard]] EvacuationStep after_restore_plan(Evacuation& e, const std::optional<Place>& to,
                                                const std::string& reason, const ClusterFacts& facts);
[[nodiscard]] EvacuationStep after_restore(Evacuation& e, const Result<Restored>& restored,
                                           const ClusterFacts& facts);
[[nodiscard]] EvacuationStep after_park(const Result<void>& parked);
// A restore that the coordinator had requested when it ended may have happened or not: the job's place tells
// which. nullopt: nothing was under way.
[[nodiscard]] std::optional<EvacuationStep> after_restart(Evacuation& e, const Job* job);

}  // namespace ckpt::coordinator
