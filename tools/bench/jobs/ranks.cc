// SPDX-License-Identifier: Apache-2.0
// The part of Cluster that runs jobs of several ranks.
#include <algorithm>

#include "tools/bench/jobs/cluster.h"

namespace ckpt::bench {
namespace {

constexpr Nanos kUntilAllReported = 30'000'000'000;

double number_or_zero(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_number() ? at->get<double>() : 0;
}

// Adds a rank's migration to the longest times so far. Returns kAborted if a rank has not moved.
Result<void> take_rank(const Json& migration, RanksMove& move) {
  const auto report = migration.find("report");
  const bool is_done = report != migration.end() && report->is_object() && migration.contains("result") &&
                       migration["result"] == "done";
  if (!is_done)
    return Error(ErrorCode::kAborted,
                 "A rank has not moved: " + migration.value("error", std::string("no reason")));
  move.downtime_ms = std::max(move.downtime_ms, number_or_zero(*report, "downtime_ms"));
  move.communicators_ms = std::max(move.communicators_ms, number_or_zero(*report, "communicators_ms"));
  move.skew_ms = std::max(move.skew_ms, number_or_zero(*report, "skew_ms"));
  const auto staying = report->find("staying");
  if (staying == report->end() || !staying->is_array()) return ok();
  for (const Json& rank : *staying) {
    move.waited_ms = std::max(move.waited_ms, number_or_zero(rank, "pause_ms"));
    move.communicators_ms = std::max(move.communicators_ms, number_or_zero(rank, "communicators_ms"));
  }
  return ok();
}

}  // namespace

Result<std::string> Cluster::run_ranks(const std::string& program, int ranks, const Arguments& environment,
                                       const Arguments& arguments) {
  const std::string name = program + "-" + std::to_string(++jobs_);
  Arguments call = {"run",     "--detach", "--cooperative", "--name", name, "--ranks", std::to_string(ranks),
                    "--nodes", "node-a"};
  for (const std::string& variable : environment) call.insert(call.end(), {"--env", variable});
  call.insert(call.end(), {"--", program_folder_ + "/examples/" + program});
  call.insert(call.end(), arguments.begin(), arguments.end());
  CKPT_TRYV(run(call, true));
  return name;
}

// Returns the measured move, or nullopt if not all ranks have reported yet.
Result<std::optional<RanksMove>> Cluster::measured_move(const std::string& id) {
  CKPT_TRY(migrations, ask({"migrations", "--all"}));
  RanksMove move;
  move.id = id;
  bool is_measured = false;
  for (const Json& migration : migrations) {
    if (!migration.is_object() || !migration.contains("gang_move") || migration["gang_move"] != id) continue;
    if (migration.value("open", true)) return std::optional<RanksMove>();
    CKPT_TRYV(take_rank(migration, move));
    is_measured = is_measured || migration["report"]["skew_ms"].is_number();
  }
  return is_measured ? std::optional(move) : std::nullopt;
}

Result<RanksMove> Cluster::move_ranks(const std::string& job, const std::string& ranks,
                                      const std::string& node) {
  Arguments call = {"migrate", job, "--to", node};
  if (!ranks.empty()) call.insert(call.end(), {"--rank", ranks});
  CKPT_TRY(report, ask(call));
  const std::string id = report.value("id", std::string());
  const Nanos deadline = now_ns() + kUntilAllReported;
  while (now_ns() < deadline) {
    CKPT_TRY(move, measured_move(id));
    if (move) return *move;
  }
  return Error(ErrorCode::kTimedOut, "Not all ranks of " + job + " reported move " + id);
}

}  // namespace ckpt::bench
