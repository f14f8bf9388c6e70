// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/watch.h"

#include <algorithm>
#include <optional>

#include "libckpt/record/document.h"
#include "tools/gpumigrate/client/progress.h"
#include "tools/gpumigrate/client/views.h"

namespace ckpt::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPlainLineEvery{1};
constexpr std::chrono::milliseconds kRanksEvery{1000};  // the interval of queries, which take one call for
                                                        // each rank
constexpr std::chrono::seconds kAbortAnswer{10};        // a coordinator that answers later counts as lost

// Returns the progress of a migration, to find the slowest rank: -1 before the copy, then the copy's
// percentage, and 100 after the copy.
int position_of(const api::Migration& migration) {
  if (const int percent = copied_percent(migration); percent >= 0) return percent;
  const std::string& state = migration.state;
  return state == "preparing" ? -1 : state == "precopy" || state == "granted" ? 0 : 100;
}

bool leads_ranks(const api::MigrationDetail& move) {
  return move.migration.gang_move == move.migration.id && !move.moved_with.empty();
}

// A line that shows progress. On a terminal it is rewritten. Elsewhere a line is printed each second and at
// each new state.
class ProgressLine {
 public:
  explicit ProgressLine(Context& context) : context_(context) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const api::Migration& migration) {
    if (context_.terminal) {
      // A line that wraps cannot be rewritten.
      const std::size_t columns = std::max<std::size_t>(context_.screen.size().columns, 2) - 1;
      context_.err << "\r" << progress_.line(migration, columns) << "\x1b[K" << std::flush;
      shown_ = true;
      return;
    }
    const bool due = migration.state != state_ || Clock::now() - last_ >= kPlainLineEvery;
    if (context_.json || !due) return;
    state_ = migration.state;
    last_ = Clock::now();
    context_.err << progress_.line(migration, kUnlimited) << "\n" << std::flush;
  }
  void clear() {
    if (shown_) context_.err << "\r\x1b[K" << std::flush;
    shown_ = false;
  }

 private:
  Context& context_;
  Progress progress_;
  bool shown_ = false;
  std::string state_;
  Clock::time_point last_;
};

class Follower {
 public:
  Follower(Context& context, std::string id, OnInterrupt on_interrupt, const Wait& wait)
      : context_(context), id_(std::move(id)), on_interrupt_(on_interrupt), wait_(wait), line_(context) {}

  Result<Json> follow() {
    context_.coordinator.http().catch_interrupts();
    std::uint64_t revision = 0;
    for (;;) {
      if (context_.coordinator.http().consume_interrupts() > 0) {
        CKPT_TRYV(interrupted());
      }
      if (wait_.is_over_time()) return wait_.timed_out();
      auto answer = context_.coordinator.get("/v1/migrations/" + path_part(id_) +
                                             "/watch?since=" + std::to_string(revision) +
                                             "&timeout_ms=" + std::to_string(next_call().count()));
      if (!answer) {
        CKPT_TRYV(survive(std::move(answer).error()));
        continue;
      }
      lost_since_ = {};
      const auto move = record::from_answer<api::MigrationDetail>(*answer);
      if (!move.migration.open) return *std::move(answer);
      revision = move.migration.revision;
      has_ranks_ = leads_ranks(move);
      line_.show(has_ranks_ ? furthest_behind(move) : move.migration);
    }
  }

 private:
  [[nodiscard]] std::chrono::milliseconds next_call() const {
    return has_ranks_ ? std::min(wait_.next_call(), kRanksEvery) : wait_.next_call();
  }

  // Returns the slowest rank, because all ranks that move wait for it.
  const api::Migration& furthest_behind(const api::MigrationDetail& lead) {
    if (ranks_asked_ && Clock::now() - *ranks_asked_ < kRanksEvery) return slowest_;
    ranks_asked_ = Clock::now();
    slowest_ = lead.migration;
    for (const std::string& id : lead.moved_with) {
      auto other = context_.coordinator.get("/v1/migrations/" + path_part(id));
      if (!other && other.error().code() != ErrorCode::kNotFound)
        break;  // the next watch returns the same error
      if (!other) continue;
      auto rank = record::from_answer<api::Migration>(*other);
      if (position_of(rank) < position_of(slowest_)) slowest_ = std::move(rank);
    }
    return slowest_;
  }

  Result<void> interrupted() {
    line_.clear();
    interrupts_++;
    if (away()) return not_known();  // no coordinator can accept the order
    const std::string shows = "; `gpumigrate watch " + id_ + "` shows ";
    if (is_abort_requested_)
      return Error(ErrorCode::kAborted,
                   "The abort of migration " + id_ + " is requested" + shows + "its outcome");
    if (on_interrupt_ == OnInterrupt::kLeave)
      return Error(ErrorCode::kAborted, "Migration " + id_ + " continues" + shows + "it, `gpumigrate abort " +
                                            id_ + "` aborts it");
    if (interrupts_ > 1)
      return Error(ErrorCode::kAborted, "The abort of migration " + id_ + " was not accepted" + shows + "it");
    context_.note("Interrupted: aborting migration " + id_ + " (interrupt again to stop following it)");
    auto answer = context_.coordinator.post("/v1/migrations/" + path_part(id_) + "/abort",
                                            {{"reason", "interrupted at the terminal"}}, 1, kAbortAnswer);
    if (answer) {
      is_abort_requested_ = true;
      return ok();
    }
    Error error = std::move(answer).error();
    if (is_contact_lost(error)) return not_known().caused_by(std::move(error));
    context_.note(error.message());
    return ok();
  }

  // Returns the error of a failed call, unless the loop can continue. The loop handles an interrupt, and
  // redials a lost coordinator.
  Result<void> survive(Error error) {
    if (error.code() == ErrorCode::kAborted) return ok();
    if (!is_contact_lost(error)) return error;
    if (!away()) {
      line_.clear();
      context_.note(error.message() + "; retrying. The job and its migration are not affected");
      lost_since_ = Clock::now();
    }
    if (Clock::now() - lost_since_ >= context_.patience) return not_known().caused_by(std::move(error));
    context_.coordinator.http().pause(HttpClient::kRedialInterval);
    return ok();
  }

  static bool is_contact_lost(const Error& error) {
    return error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kTimedOut;
  }
  [[nodiscard]] bool away() const { return lost_since_ != Clock::time_point{}; }
  [[nodiscard]] Error not_known() const {
    return {ErrorCode::kTimedOut,
            "The outcome of migration " + id_ + " is unknown; `gpumigrate watch " + id_ + "` asks again"};
  }

  Context& context_;
  std::string id_;
  OnInterrupt on_interrupt_;
  const Wait& wait_;
  ProgressLine line_;
  bool has_ranks_ = false;  // true if other ranks move with the migration
  std::optional<Clock::time_point> ranks_asked_;
  api::Migration slowest_;  // the slowest rank
  int interrupts_ = 0;
  bool is_abort_requested_ = false;  // true once the coordinator has accepted the abort
  Clock::time_point lost_since_;
};

}  // namespace

Result<Json> follow_migration(Context& context, const std::string& id, OnInterrupt on_interrupt,
                              const Wait& wait) {
  return Follower(context, id, on_interrupt, wait).follow();
}

int print_outcome(Context& context, const Json& migration) {
  const auto ended = record::from_answer<api::Migration>(migration);
  if (context.json) {
    context.print(ended.report ? member(migration, "report") : migration);
    if (ended.error) context.note(*ended.error);
  } else {
    context.out << view_outcome(ended, context.layout()) << std::flush;
  }
  return ended.exit_code.value_or(kUnknown);
}

}  // namespace ckpt::cli
