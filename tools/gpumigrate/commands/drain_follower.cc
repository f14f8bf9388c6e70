// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/commands/drain_follower.h"

#include <map>

#include "libckpt/record/document.h"
#include "tools/gpumigrate/client/list_views.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/commands/drain_views.h"
#include "tools/gpumigrate/screens/drain_screen.h"
#include "tools/gpumigrate/screens/frame.h"

namespace ckpt::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kRedraw{1000};

// The screen on a terminal. It is redrawn in place, and removed at the end.
class DrainTerminal {
 public:
  explicit DrainTerminal(Context& context) : context_(context) {}
  ~DrainTerminal() { clear(); }
  DrainTerminal(const DrainTerminal&) = delete;
  DrainTerminal& operator=(const DrainTerminal&) = delete;

  void show(const api::Drain& drain) {
    const ScreenSize size = context_.screen.size();
    // A narrower window has wrapped lines, which cannot be counted. So the screen is drawn from the top.
    if (size.columns < columns_) {
      context_.err << "\x1b[H\x1b[2J";
      frame_.clear();
    }
    columns_ = size.columns;
    Frame next = frame_of(screen_.view(drain, moves(), std::max<std::size_t>(columns_, 2) - 1), size);
    context_.err << redraw(frame_, next) << std::flush;
    frame_ = std::move(next);
  }
  void clear() {
    context_.err << redraw(frame_, {}) << std::flush;
    frame_.clear();
  }

 private:
  // Returns the newest migrations, which include all open ones. The list is empty while the coordinator is
  // lost.
  std::vector<api::Migration> moves() {
    auto answer = context_.coordinator.get("/v1/migrations?limit=100");
    return answer ? migrations_in(*answer) : std::vector<api::Migration>();
  }

  Context& context_;
  DrainScreen screen_;
  Frame frame_;
  std::size_t columns_ = 0;
};

class DrainFollower {
 public:
  DrainFollower(Context& context, std::string id, const Wait& wait)
      : context_(context), id_(std::move(id)), wait_(wait), terminal_(context) {}

  Result<Json> follow() {
    context_.coordinator.http().catch_interrupts();
    std::uint64_t revision = 0;
    while (true) {
      if (context_.coordinator.http().consume_interrupts() > 0) return left_alone();
      if (wait_.is_over_time()) return wait_.timed_out();
      auto answer = context_.coordinator.get(drain_path(id_) + "/watch?since=" + std::to_string(revision) +
                                             "&timeout_ms=" + std::to_string(next_call().count()));
      if (!answer) {
        CKPT_TRYV(survive(answer.error()));
        continue;
      }
      lost_since_.reset();
      const auto drain = record::from_answer<api::Drain>(*answer);
      show(drain);
      if (!drain.open) return *std::move(answer);
      revision = drain.revision;
    }
  }

 private:
  [[nodiscard]] bool has_screen() const { return context_.terminal && !context_.json; }
  // Returns how long the next call may stay unanswered. The progress of moves does not change the drain's
  // revision, so a screen must poll.
  [[nodiscard]] std::chrono::milliseconds next_call() const {
    return has_screen() ? std::min(wait_.next_call(), kRedraw) : wait_.next_call();
  }

  void show(const api::Drain& drain) {
    if (context_.json) return;
    if (has_screen()) {
      if (drain.open) terminal_.show(drain);
      return;
    }
    for (const api::DrainJob& job : drain.jobs) {
      // The key of a moving job has the migration, not the reason. That reason is the migration's phase,
      // which `watch` shows.
      const std::string key = job.state + (job.state == "moving" ? job.migration : job.reason).value_or("-");
      std::string& shown = shown_[job.job];
      if (std::exchange(shown, key) == key) continue;
      context_.err << printable(id_) << " " << view_drain_job(job) << "\n" << std::flush;
    }
  }

  [[nodiscard]] Error left_alone() const {
    return {ErrorCode::kAborted, "Drain " + id_ + " continues; `gpumigrate drains " + id_ +
                                     " --watch` shows its progress, `gpumigrate drains " + id_ +
                                     " --cancel` cancels it"};
  }

  Result<void> survive(const Error& error) {
    if (error.code() == ErrorCode::kAborted) return ok();
    if (error.code() != ErrorCode::kUnavailable && error.code() != ErrorCode::kTimedOut) return error;
    if (!lost_since_) {
      terminal_.clear();
      context_.note(error.message() + "; retrying. The drain continues once the coordinator is back");
      lost_since_ = Clock::now();
    }
    if (Clock::now() - *lost_since_ >= context_.patience)
      return Error(ErrorCode::kTimedOut, "The outcome of drain " + id_ + " is unknown; `gpumigrate drains " +
                                             id_ + " --watch` asks again");
    context_.coordinator.http().pause(HttpClient::kRedialInterval);
    return ok();
  }

  Context& context_;
  std::string id_;
  const Wait& wait_;
  DrainTerminal terminal_;
  std::map<std::string, std::string> shown_;
  std::optional<Clock::time_point> lost_since_;
};

}  // namespace

std::string drain_path(const std::string& id) {
  return "/v1/drains/" + path_part(id);
}

Result<Json> follow_to_its_end(Context& context, const std::string& id, const Wait& wait) {
  return DrainFollower(context, id, wait).follow();
}

}  // namespace ckpt::cli
