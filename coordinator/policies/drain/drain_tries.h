// SPDX-License-Identifier: Apache-2.0
// Decides which jobs of a drain are tried next, and what follows from each try. Pure: it changes the drain's
// entries and its own memory of tries. The caller makes the plans, queries the nodes and begins the moves.
//
// A job that cannot be moved now is checked again whenever jobs, nodes or migrations have changed. The memory
// need not survive a restart.
// Threads: one. Errors: none.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/policies/drain/drain_progress.h"
#include "coordinator/policies/job_move_plan.h"
#include "libckpt/base/result.h"

namespace ckpt::coordinator {

// The reason in the entries of a move that has no migration yet.
inline constexpr std::string_view kBeingPrepared = "the move of its ranks is being prepared";

// Counts of the changes so far that may free memory or make a job movable.
struct DrainNews {
  std::uint64_t changes = 1;
  std::uint64_t inventories = 1;  // number of inventories from nodes; each also counts as a change
};

// The ranks of one job at the drained place. They are moved together: if one rank must wait, all ranks wait.
struct DrainGroup {
  JobId job = 0;
  std::vector<DrainJob*> entries;
};

// Groups the drain's jobs that can be tried. The job with the most ranks at the place comes first, because it
// needs the most GPUs at once. Jobs with equally many ranks have the order of goes_before(). Blocks the jobs
// that only a user's order may move.
[[nodiscard]] std::vector<DrainGroup> ready_groups(Drain& drain, const DrainView& view);

// The facts about a group before it is planned.
struct GroupNow {
  bool is_preparing = false;  // a move of the group's ranks is being prepared
  bool has_turn = false;      // the node has fewer outgoing moves than allowed
  bool is_movable = true;     // false if the coordinator's records show an obstacle
};

// The facts that decide whether the job's node is queried before a move.
struct SourceFacts {
  bool leaves_node = false;
  bool has_obstacles = false;  // the job's node has counted obstacles of the job
};

enum class DrainStep : std::uint8_t {
  kStay,       // do nothing; the entries contain the reason
  kMakeWay,    // do nothing, but cancel a suspend of the job that is in progress if the plan has a place; the
               // entries contain the reason
  kAskSource,  // query the job's node whether the job can leave
  kBegin,
};

// Records why none of the plan's GPUs can take the job: a summary by cause in the entry's reason, and the
// reason of each GPU in its obstacles. `drained` returns whether a place is being drained.
void explain(const JobMovePlan& plan, DrainJob& entry, const std::function<bool(const Place&)>& drained);

// Returns the time limit of a move of the drain: the time until the deadline, within kShortestMoveMs and
// kLongestMoveMs.
[[nodiscard]] std::int64_t move_time_ms(const Drain& drain, std::int64_t now_ms);

class DrainTries {
 public:
  // Returns true if the group must be planned now.
  bool prepare_try(const DrainGroup& group, const GroupNow& now, const DrainNews& news);

  // The places to which moves of a job failed.
  struct Failures {
    ClosedScopes all;      // all failed places, avoided if there is another place
    ClosedScopes refused;  // the places that refused the job, avoided in any case
    std::string refusal;   // the reason of a refusal; empty if no place refused
  };
  [[nodiscard]] Failures failures_of(const DrainGroup& group) const;

  [[nodiscard]] DrainStep after_plan(const DrainGroup& group, const Result<JobMovePlan>& plan,
                                     const SourceFacts& source,
                                     const std::function<bool(const Place&)>& drained);

  // Records a node's answer to the query whether the job can leave. `refusal` is the reason why it cannot;
  // empty means that it can, or that the node did not answer.
  void note_answer(JobId job, const std::string& refusal, const DrainNews& news);
  // Records that a move did not begin. The next prepare_try() or resolve_not_begun() writes the reason into
  // the entries of the job's ranks.
  void note_not_begun(JobId job, const std::string& reason, const DrainNews& news);
  // Writes a recorded reason from note_not_begun() into the group's entries. Returns true if there was one.
  bool resolve_not_begun(const DrainGroup& group);
  // Records failed moves. The ranks of one move may be noted one after another.
  void note_failures(const std::vector<FailedMove>& failed, const DrainNews& news);

 private:
  // The answer of a job's node to the query whether the job can leave. The query is sent before the first
  // move if the node has counted obstacles, and after a refusal. So a job that no target can take is blocked
  // at once.
  struct SourceAnswer {
    bool is_due = false;
    bool is_asked = false;
    bool is_known = false;
    std::string refusal;
    std::uint64_t at = 0;  // the value of DrainNews::inventories when the answer arrived
  };
  struct Failure {
    MigrationId move = 0;
    Place to;
    std::string refusal;  // why the target refused the move; empty: the target may be tried again
  };

  [[nodiscard]] DrainStep by_source(const DrainGroup& group, const SourceFacts& source);
  void note_failure(const FailedMove& failed, const DrainNews& news);

  std::map<JobId, std::uint64_t> planned_at_;   // the value of DrainNews::changes at each job's last planning
  std::map<JobId, std::uint64_t> retry_after_;  // the value of DrainNews::inventories at each job's last
                                                // failure; a retry waits for a later inventory
  std::map<JobId, std::vector<Failure>> failures_;
  std::map<JobId, SourceAnswer> answers_;
  std::map<JobId, std::string> not_begun_;  // the reasons why the last moves did not begin
};

}  // namespace ckpt::coordinator
