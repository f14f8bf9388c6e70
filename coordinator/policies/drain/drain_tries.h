// SPDX-License-Identifier: Apache-2.0
// Decides which jobs of a drain are tried next, and what follows from each try. Pure: it changes the drain's entries and
// its own memory of tries. The caller makes the plans, asks the nodes and begins the moves.
//
// A job that cannot be moved now is looked at again whenever jobs, nodes or migrations have changed. The memory need
// not survive a restart.
// Threads: one. Errors: none.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "coordinator/policies/drain/drain_progress.h"
#include "coordinator/policies/job_move_plan.h"
#include "libckpt/base/result.h"

namespace ckpt::coordinator {

// The changes so far that may free memory, or make a job movable, by count.
struct DrainNews {
  std::uint64_t changes = 1;
  std::uint64_t inventories = 1;  // of nodes; each is a change, too
};

// The ranks of one job that are at the place. They count as one move: what one of them waits for, all do.
struct DrainGroup {
  JobId job = 0;
  bool prepares = false;  // DrainView::prepares()
  std::vector<DrainJob*> entries;
};

// Groups the drain's jobs that can be tried: first those whose moves must be prepared, by id; then by goes_before().
// Blocks those that nothing but a user's order may move.
[[nodiscard]] std::vector<DrainGroup> ready_groups(Drain& drain, const DrainView& view);

// The facts about a group before it is planned.
struct GroupNow {
  bool is_preparing = false;  // a move of its ranks
  bool has_turn = false;      // fewer moves than allowed are leaving the node
  bool is_movable = true;     // as far as the records tell
};

// The facts that decide whether the job's node is asked before a move: where it would go, and what its node counts.
struct SourceFacts {
  bool leaves_node = false;
  bool has_obstacles = false;  // its node has counted some
};

enum class DrainStep : std::uint8_t {
  kStay,       // the entries tell why
  kMakeWay,    // likewise; an image of it that is under way is given up if there is a place
  kAskSource,  // whether the job can leave
  kBegin,
};

// Writes why none of the plan's GPUs can take the job: by cause in the entry's reason, each GPU in its obstacles.
// `drained`: whether a place is being drained.
void explain(const JobMovePlan& plan, DrainJob& entry, const std::function<bool(const Place&)>& drained);

// The time that a move of the drain may take.
[[nodiscard]] std::int64_t move_time_ms(const Drain& drain, std::int64_t now_ms);

class DrainTries {
 public:
  // Returns true if the group shall be planned now.
  bool is_due(const DrainGroup& group, const GroupNow& now, const DrainNews& news);

  // The places where moves of a job came to nothing.
  struct Failures {
    ClosedScopes all;      // to avoid, if there is another
    ClosedScopes refused;  // to avoid in any case
    std::string refusal;   // why; empty: none was refused
  };
  [[nodiscard]] Failures failures_of(const DrainGroup& group) const;

  [[nodiscard]] DrainStep after_plan(const DrainGroup& group, const Result<JobMovePlan>& plan,
                                     const SourceFacts& source,
                                     const std::function<bool(const Place&)>& drained);

  // Notes that a node has answered whether the job can leave. `refusal`: why not; empty: it can, or has not answered.
  void note_answer(JobId job, const std::string& refusal, const DrainNews& news);
  // Notes that a move did not begin; its entries show it at the next is_due() or take_not_begun().
  void note_not_begun(JobId job, const std::string& reason, const DrainNews& news);
  // Shows it, if there is something to show.
  bool take_not_begun(const DrainGroup& group);
  void note_failure(const FailedMove& failed, const DrainNews& news);

 private:
  // The answer of a job's node to the question whether it can leave. It is asked before the first move where the
  // node has counted obstacles, and after a refusal: a job that no target can take is blocked at once.
  struct SourceAnswer {
    bool is_due = false;
    bool is_asked = false;
    bool is_known = false;
    std::string refusal;
    std::uint64_t at = 0;  // DrainNews::inventories
  };
  struct Failure {
    Place to;
    std::string refusal;  // empty: it may be tried there again
  };

  [[nodiscard]] DrainStep by_source(const DrainGroup& group, const SourceFacts& source);

  std::map<JobId, std::uint64_t> planned_at_;   // DrainNews::changes
  std::map<JobId, std::uint64_t> retry_after_;  // DrainNews::inventories
  std::map<JobId, std::vector<Failure>> failures_;
  std::map<JobId, SourceAnswer> answers_;
  std::map<JobId, std::string> not_begun_;  // why the last move did not begin
};

}  // namespace ckpt::coordinator
