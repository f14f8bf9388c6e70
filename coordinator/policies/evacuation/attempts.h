// SPDX-License-Identifier: Apache-2.0
// The steps by which one job is evacuated. It moves live where its memory can be read, to one target after
// the other. Otherwise it continues from its newest image, or is parked; it is never killed. Pure: each
// function takes an evacuation and the facts, changes the evacuation's own record, and returns the next step.
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

// The facts with which an attempt begins.
struct EvacuationView {
  const Job* job = nullptr;         // null if the job was removed
  const Migration* open = nullptr;  // the open migration of the job
  bool is_paused = false;           // the policy of the job's node is paused
  bool is_breaker_open = false;
  std::int64_t forgiven_ms = 0;
  std::vector<const Evacuation*> all;
  std::int64_t now_ms = 0;
};

// The next step of an evacuation.
struct EvacuationStep {
  enum class Kind : std::uint8_t {
    kWait,         // wait for a change
    kEnter,        // enter the state `state`
    kAbortMove,    // abort `migration`, if it is set, and wait for its end
    kOpenBreaker,  // open the breaker because of `reason`, and wait
    kLive,         // search for a target of a live move
    kBeginLive,    // begin the live move to the place of the plan
    kImage,        // search for an image, and for a GPU that can restore it
    kBeginRestore,
    kPark,
  };
  // The time at which a job is tried again. With kAtOnce, the job is tried again even if nothing changes.
  enum class Again : std::uint8_t { kAsItWas, kAtOnce, kAtChange };
  Kind kind = Kind::kWait;
  EvacuationState state = EvacuationState::kQueued;
  std::string note;
  MigrationId migration = 0;
  std::string reason;
  bool makes_way = false;  // if the plan has a place for the job, a suspend of the job that is in progress is
                           // canceled
  bool snapshot = false;   // with kPark: a new image is taken first
  Again again = Again::kAsItWas;
};

// Returns the first step of an attempt.
[[nodiscard]] EvacuationStep begin_attempt(Evacuation& e, const EvacuationView& view,
                                           const EvacuationLimits& limits);

// The facts about the cluster that matter if no GPU can take the job.
struct ClusterFacts {
  bool may_come_back = false;  // some nodes have not reported their GPUs yet
  bool are_away = false;       // some nodes are not connected
};

// Returns the step that precedes the search for a target of a live move, or nullopt if the search may begin.
// `is_preparing` means that a move of the job is being prepared.
[[nodiscard]] std::optional<EvacuationStep> before_live_plan(Evacuation& e, bool is_preparing,
                                                             const ClusterFacts& facts,
                                                             const EvacuationLimits& limits);
// Returns the step after the planning of a live move. `plan` excludes the places of closed_for().
[[nodiscard]] EvacuationStep after_live_plan(Evacuation& e, const Result<JobMovePlan>& plan,
                                             const ClusterFacts& facts);
// Returns the places that the evacuation must not use as a target.
[[nodiscard]] ClosedScopes closed_for(const Evacuation& e);
// Returns the step after `migration`, which is the evacuation's migration and has ended.
[[nodiscard]] EvacuationStep after_live(Evacuation& e, const Migration& migration);

// Returns the step for a job without an image that a connected node can read. `may_park` means that the job
// can be parked in an image by itself.
[[nodiscard]] EvacuationStep without_image(Evacuation& e, const Job& job, bool may_park,
                                           const ClusterFacts& facts);
// Returns the step after the search for a GPU that can restore the image. `to` is the GPU; nullopt means that
// there is none, for `reason`.
[[nodiscard]] EvacuationStep after_restore_plan(Evacuation& e, const std::optional<Place>& to,
                                                const std::string& reason, const ClusterFacts& facts);
[[nodiscard]] EvacuationStep after_restore(Evacuation& e, const Result<Restored>& restored,
                                           const ClusterFacts& facts);
[[nodiscard]] EvacuationStep after_park(const Result<void>& parked);
// Returns the step after a restart of the coordinator during a restore, which may have happened or not. The
// current place of the job decides. nullopt means that no restore was in progress.
[[nodiscard]] std::optional<EvacuationStep> after_restart(Evacuation& e, const Job* job);

}  // namespace ckpt::coordinator
