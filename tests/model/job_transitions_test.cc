// SPDX-License-Identifier: Apache-2.0
// Tests of the machine against tests/model/job_transitions.txt. The table in lifecycle/rank_state.cc equals
// the model's table. In thousands of random lives the machine uses only transitions of the table, and
// satisfies I3, J1 and J2 of ADR 54.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <set>

#include "coordinator/lifecycle/job_machine.h"
#include "tests/unit/coordinator/support/fake_job_view.h"

namespace ckpt::coordinator::lifecycle {
namespace {

std::set<std::string> read_table() {
  std::ifstream file(TRANSITIONS_FILE);
  std::set<std::string> table;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("rank ")) table.insert(line.substr(5));
  return table;
}

// Returns the arrows of the diagram in docs/architecture.md; "[*]" stands for the states before and after the
// job.
std::set<std::string> read_diagram() {
  std::ifstream file(ARCHITECTURE_FILE);
  std::set<std::string> arrows;
  bool is_there = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) is_there = line == "## States of a job";
    const auto arrow = line.find(" --> ");
    if (!is_there || arrow == std::string::npos) continue;
    const std::string from = line.substr(4, arrow - 4);
    const std::string to = line.substr(arrow + 5);
    arrows.insert((from == "[*]" ? "-" : from) + " " + (to == "[*]" ? "GONE" : to));
  }
  return arrows;
}

std::string text_of(RankState from, RankState to) {
  return std::string(to_string(from)) + " " + std::string(to_string(to));
}

TEST(JobTransitionsTest, TransitionTableMatchesTheModelAndTheDiagram) {
  std::set<std::string> machine;
  for (const Transition& one : transitions()) machine.insert(text_of(one.from, one.to));
  std::set<std::string> model = read_table();
  // transitions() omits this transition, which the model has.
  for (const RankState state : {RankState::kEndingStart}) model.erase(text_of(state, state));
  EXPECT_EQ(machine, model);
  EXPECT_EQ(machine, read_diagram());
}

// A view in which every image is known.
struct ViewOfLife : FakeView {
  [[nodiscard]] std::optional<Image> image(std::string_view name) const override {
    return name.empty() ? std::nullopt : std::optional(Image());
  }
};

// A job of several ranks on nodes a to c, with a randomly drawn life.
class Life {
 public:
  Life(std::uint64_t seed, std::set<std::string>& seen) : random_(seed), seen_(seen) {
    const std::uint32_t ranks = 1 + draw(3);
    for (std::uint32_t i = 0; i < ranks; ++i) {
      Job& job = jobs_.emplace_back();
      job.id = 1 + i;
      job.spec.name = "j" + std::to_string(i);
      job.state = JobState::kStarting;
      job.segments.emplace_back(node(), 1);
      if (draw(2) == 0) job.segments.back().image = "j1.v1@a";
      job.ranks.emplace_back().rank = i;
    }
    started_.resize(ranks, {1});
  }

  void go_on() {
    now_ms_ += 10;
    change_the_cluster();
    const std::size_t at = draw(static_cast<std::uint32_t>(jobs_.size()));
    std::vector<const Job*> ranks;
    ranks.reserve(jobs_.size());
    for (const Job& job : jobs_) ranks.push_back(&job);
    const RankEvent events[] = {{at, event_of(jobs_[at])}};
    const std::string before = std::string(to_string(state_of(jobs_[at])));
    const auto made = step(ranks, events, view_, now_ms_);
    if (!made) {
      ASSERT_NE(made.error().code(), ErrorCode::kInternal)
          << "event " << events[0].event.index() << " in " << before << ": " << made.error().to_string();
      return;
    }
    for (const Job& changed : made->changed) take(changed);
    check_rules();
  }

 private:
  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }
  std::string node() { return std::string(1, static_cast<char>('a' + draw(3))); }

  void change_the_cluster() {
    view_.away.clear();
    if (draw(4) == 0) view_.away.insert(node());
    view_.open.reset();
    if (draw(6) == 0) view_.open.emplace();
    view_.closing = draw(6) == 0;
    view_.instances.clear();
    for (const Job& job : jobs_) {
      if (draw(3) == 0) continue;
      wire::JobInstance one;
      one.job = job.id;
      one.incarnation = job.segments.back().incarnation;
      constexpr wire::JobPhase kPhases[] = {wire::JobPhase::kRunning, wire::JobPhase::kExited,
                                            wire::JobPhase::kMoved, wire::JobPhase::kStarting};
      one.phase = kPhases[draw(4)];
      one.exit_code = static_cast<int>(draw(2));
      view_.instances[job.node()].push_back(one);
    }
  }

  ImageOperation operation_of(const Job& job) {
    ImageOperation operation;
    operation.by_user = draw(2) == 0;
    operation.instance_ended = !holds_gpu(job.state);
    operation.image.job = draw(5) == 0 ? 99 : job.id;
    operation.to_node = node();
    const std::uint32_t kind = draw(3);
    if (kind != 0) operation.goal = OperationGoal::kParked;
    if (kind == 1) operation.stage = OperationStage::kTaking;
    return operation;
  }

  // Returns an order that the coordinator's requests allow in the job's state.
  JobEvent order_of(const Job& job) {
    const RankState state = state_of(job);
    ImageOperation operation = operation_of(job);
    if (state == RankState::kStarting) return Stop{1};
    const bool parked = operation.goal == OperationGoal::kParked;
    if (operation.stage == OperationStage::kTaking && state != RankState::kRunning) return Stop{1};
    if (parked && state != RankState::kRunning && !is_over(state)) return StaysParked();
    return OperationBegun{operation};
  }

  JobEvent event_of(const Job& job) {
    switch (draw(18)) {
      case 0:
        return StartAnswered();
      case 1:
        return StartAnswered{Error(ErrorCode::kNotFound, "no such file")};
      case 2:
      case 3:
        if (const wire::JobInstance* own = own_instance(job, view_)) return report_of(*own);
        return Missing();
      case 4:
        return LeftBehind();
      case 5:
        return NodeRemoved{draw(2) == 0};
      case 6:
        return Proven{node(), job.incarnation};
      case 7:
        return NodeFenced{node()};
      case 8:
        return Stop{1};
      case 9:
        return SnapshotGivenUp{"a move"};
      case 10:
        return NotParked{Error(ErrorCode::kAborted, "given up")};
      case 11:
        return ImageStored{draw(3) == 0 ? std::nullopt : std::optional(operation_of(job).image),
                           std::nullopt};
      case 12:
        return InstancesEnded();
      case 13:
        return RunsFromImage{Restored{.image = operation_of(job).image}};
      case 14:
        return NotStarted{Error(ErrorCode::kNotFound, "no such file")};
      case 15:
        if (!job.operation && draw(4) == 0) return found_running(job);
        return Confirmed{"an admin"};
      default:
        return order_of(job);
    }
  }

  FoundRunning found_running(const Job& job) {
    FoundRunning found;
    found.at.k = std::max(job.incarnation, job.fenced) + 1;
    found.at.segment = Segment(node(), found.at.k);
    found.at.ranks = job.ranks;
    found.name = job.spec.name;
    return found;
  }

  void take(const Job& changed) {
    for (std::size_t at = 0; at < jobs_.size(); ++at) {
      Job& before = jobs_[at];
      if (before.id != changed.id) continue;
      EXPECT_GE(changed.fenced, before.fenced) << "a fence never falls";
      if (state_of(changed) == RankState::kComing && state_of(before) != RankState::kComing) {
        EXPECT_TRUE(started_[at].insert(changed.incarnation).second) << "no incarnation is given twice";
      }
      seen_.insert(text_of(state_of(before), state_of(changed)));
      before = changed;
      started_[at].insert(before.incarnation);
    }
  }

  void check_rules() {
    bool failed = false;
    bool parked = false;
    for (const Job& job : jobs_) {
      failed |=
          is_ended(job.state) && !job.operation && !(job.state == JobState::kExited && job.exit_code == 0);
      parked |= state_of(job) == RankState::kParked;
      EXPECT_FALSE(state_of(job) == RankState::kParked && job.stop_requested);
    }
    for (const Job& job : jobs_) {
      if (failed) {
        EXPECT_TRUE(is_ended(job.state) || job.stop_requested) << "J1: " << to_string(state_of(job));
      }
      const bool runs = state_of(job) == RankState::kRunning && !job.segments.back().image.empty();
      const bool rises = state_of(job) == RankState::kComing || state_of(job) == RankState::kEndingStart;
      if (parked && !failed && !view_.open) {
        EXPECT_FALSE((runs || rises) && !job.stop_requested) << "J2";
      }
    }
  }

  std::mt19937_64 random_;
  std::set<std::string>& seen_;
  ViewOfLife view_;
  std::vector<Job> jobs_;
  std::vector<std::set<Incarnation>> started_;
  std::int64_t now_ms_ = 1000;
};

TEST(JobTransitionsTest, RandomJobLifetimesUseOnlyTransitionsOfTheTable) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 1; seed <= 4'000 && !::testing::Test::HasFailure(); ++seed) {
    Life life(seed, seen);
    for (int i = 0; i < 120 && !::testing::Test::HasFailure(); ++i) life.go_on();
    if (::testing::Test::HasFailure()) ADD_FAILURE() << "seed " << seed;
  }
  for (const Transition& one : transitions()) {
    const bool at_the_edge = one.from == RankState::kNone || one.to == RankState::kGone;
    if (!at_the_edge) {
      EXPECT_TRUE(seen.contains(text_of(one.from, one.to))) << text_of(one.from, one.to);
    }
  }
}

}  // namespace
}  // namespace ckpt::coordinator::lifecycle
