// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/drain/drain_tries.h"

#include <algorithm>
#include <utility>

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kLongestMoveMs = 600'000;
// The number of inventories until a refused job is checked again. Its program may have removed the obstacle
// by then.
constexpr std::uint64_t kInventoriesUntilRetry = 12;

void set_all(const DrainGroup& group, DrainJobState state, const std::string& reason) {
  for (DrainJob* entry : group.entries) {
    entry->state = state;
    entry->reason = reason;
  }
}

// Blocks a job that nothing but a user's order may move (why_not_by_itself()), and returns true for it.
bool stays_by_order(DrainJob& entry, const Job& job) {
  std::string reason = job.why_not_by_itself();
  if (reason.empty()) return false;
  entry.state = DrainJobState::kBlocked;
  entry.obstacles.clear();
  entry.reason = std::move(reason);
  return true;
}

}  // namespace

std::vector<DrainGroup> ready_groups(Drain& drain, const DrainView& view) {
  std::vector<DrainJob*> ready;
  for (DrainJob& entry : drain.jobs) {
    const bool waits = entry.state == DrainJobState::kWaiting || entry.state == DrainJobState::kBlocked;
    const Job* job = view.job(entry.job);
    if (waits && job != nullptr && !stays_by_order(entry, *job)) ready.push_back(&entry);
  }
  std::sort(ready.begin(), ready.end(),
            [](const DrainJob* a, const DrainJob* b) { return goes_before(*a, *b); });
  std::vector<DrainGroup> groups;
  for (DrainJob* entry : ready) {
    const JobId whole = view.job(entry->job)->whole();
    const auto known = std::find_if(groups.begin(), groups.end(),
                                    [&](const DrainGroup& group) { return group.job == whole; });
    DrainGroup& group = known != groups.end() ? *known : groups.emplace_back();
    group.job = whole;
    group.entries.push_back(entry);
  }
  std::stable_sort(groups.begin(), groups.end(), [](const DrainGroup& a, const DrainGroup& b) {
    return a.entries.size() > b.entries.size();
  });
  return groups;
}

void explain(const JobMovePlan& plan, DrainJob& entry, const std::function<bool(const Place&)>& drained) {
  entry.reason = plan.reason;
  entry.obstacles.clear();
  if (!plan.no_gpu) return;
  entry.reason = "no GPU: " + causes_text(plan.candidates, [&](const Place& place) {
                   return drained(place) ? std::string("being drained") : std::string();
                 });
  entry.obstacles = obstacles_of(plan.candidates);
}

std::int64_t move_time_ms(const Drain& drain, std::int64_t now_ms) {
  return std::clamp(drain.deadline_ms - now_ms, kShortestMoveMs, kLongestMoveMs);
}

bool DrainTries::prepare_try(const DrainGroup& group, const GroupNow& now, const DrainNews& news) {
  if (resolve_not_begun(group) || now.is_preparing) return false;
  if (!now.has_turn && now.is_movable) {
    for (DrainJob* entry : group.entries) {
      // The reason kBeingPrepared is replaced, because the move is not being prepared any more.
      if (entry->state == DrainJobState::kWaiting &&
          (entry->reason.empty() || entry->reason == kBeingPrepared))
        entry->reason = "waits for its turn";
    }
    return false;
  }
  const auto retry = retry_after_.find(group.job);
  if (retry != retry_after_.end() && news.inventories <= retry->second) return false;
  if (std::exchange(planned_at_[group.job], news.changes) == news.changes) return false;
  SourceAnswer& answer = answers_[group.job];
  if (answer.is_known && !answer.refusal.empty() && news.inventories > answer.at + kInventoriesUntilRetry) {
    answer = SourceAnswer();
    answer.is_due = true;
    failures_.erase(group.job);
  }
  return true;
}

DrainTries::Failures DrainTries::failures_of(const DrainGroup& group) const {
  Failures failures;
  const auto known = failures_.find(group.job);
  if (known == failures_.end()) return failures;
  for (const Failure& failure : known->second) {
    const Scope scope(failure.to.node, failure.to.gpu);
    failures.all.emplace_back(scope, "the last move there failed");
    if (failure.refusal.empty()) continue;
    failures.refused.emplace_back(scope, "a move there was refused");
    failures.refusal += (failures.refusal.empty() ? "" : "; ") + failure.refusal;
  }
  return failures;
}

DrainStep DrainTries::after_plan(const DrainGroup& group, const Result<JobMovePlan>& plan,
                                 const SourceFacts& source,
                                 const std::function<bool(const Place&)>& drained) {
  for (DrainJob* entry : group.entries) entry->obstacles.clear();
  if (!plan) {
    // The group waits, because the cause of a refusal may pass, such as a rank that is paused for an image.
    set_all(group, DrainJobState::kWaiting, plan.error().to_string());
    return DrainStep::kStay;
  }
  if (!plan->is_possible()) {
    for (DrainJob* entry : group.entries) {
      entry->state = plan->passing ? DrainJobState::kWaiting : DrainJobState::kBlocked;
      explain(*plan, *entry, drained);
    }
    return DrainStep::kMakeWay;
  }
  return by_source(group, source);
}

DrainStep DrainTries::by_source(const DrainGroup& group, const SourceFacts& source) {
  SourceAnswer& answer = answers_[group.job];
  if (source.leaves_node && source.has_obstacles && !answer.is_known) answer.is_due = true;
  if (answer.is_known && !answer.refusal.empty()) {
    set_all(group, DrainJobState::kBlocked, answer.refusal);
    return DrainStep::kStay;
  }
  if (!answer.is_due) return DrainStep::kBegin;
  set_all(group, DrainJobState::kWaiting, "its node is being asked whether the job can leave");
  return std::exchange(answer.is_asked, true) ? DrainStep::kStay : DrainStep::kAskSource;
}

void DrainTries::note_answer(JobId job, const std::string& refusal, const DrainNews& news) {
  SourceAnswer& answer = answers_[job];
  answer = SourceAnswer();
  answer.is_known = true;
  answer.at = news.inventories;
  answer.refusal = refusal;
}

void DrainTries::note_not_begun(JobId job, const std::string& reason, const DrainNews& news) {
  not_begun_[job] = reason;
  retry_after_[job] = news.inventories;
}

bool DrainTries::resolve_not_begun(const DrainGroup& group) {
  const auto failed = not_begun_.find(group.job);
  if (failed == not_begun_.end()) return false;
  bool is_given_up = false;
  for (DrainJob* entry : group.entries) is_given_up = ++entry->attempts >= kMaxDrainAttempts || is_given_up;
  set_all(group, is_given_up ? DrainJobState::kFailed : DrainJobState::kWaiting, failed->second);
  not_begun_.erase(failed);
  return true;
}

void DrainTries::note_failures(const std::vector<FailedMove>& failed, const DrainNews& news) {
  for (const FailedMove& move : failed) note_failure(move, news);
}

void DrainTries::note_failure(const FailedMove& failed, const DrainNews& news) {
  std::vector<Failure>& failures = failures_[failed.job];
  // Targets of earlier moves may be tried again, unless they refused the job.
  std::erase_if(failures, [&](const Failure& known) {
    return known.to == failed.to || (known.move != failed.move && known.refusal.empty());
  });
  failures.push_back({failed.move, failed.to, failed.refusal});
  if (failed.refusal.empty()) {
    retry_after_[failed.job] = news.inventories;
    return;
  }
  answers_[failed.job] = SourceAnswer();
  answers_[failed.job].is_due = true;
}

}  // namespace ckpt::coordinator
