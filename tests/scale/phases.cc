// SPDX-License-Identifier: Apache-2.0
#include "tests/scale/phases.h"

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "coordinator/state/sqlite.h"
#include "libckpt/base/fd.h"

namespace ckpt::scale {
namespace {

using Clock = std::chrono::steady_clock;
using coordinator::test::HttpAnswer;
using nlohmann::json;

constexpr const char* kDryRun = R"({"argv":["./train"],"cwd":"/tmp","dry_run":true})";
constexpr std::chrono::seconds kLeaving{300};
constexpr std::chrono::milliseconds kBetweenProbes{5};
constexpr std::chrono::milliseconds kBetweenCounts{250};
constexpr std::chrono::seconds kUnchanged{3};
constexpr unsigned kQuietProbes = 400;

double ms_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns the duration of the call, if it was answered with the expected status.
template <class Call>
Result<double> timed(unsigned wanted_status, Call call) {
  const auto begun = Clock::now();
  const HttpAnswer answer = call();
  const double took = ms_since(begun);
  if (answer.status != wanted_status)
    return Error(ErrorCode::kInternal, "HTTP " + std::to_string(answer.status) + " in place of " +
                                           std::to_string(wanted_status) + ": " + answer.body.substr(0, 300));
  return took;
}

Result<double> run_command(const std::string& program, const std::string& home) {
  std::string words[] = {program, "run", "--dry-run", "--", "/bin/true"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::string home_is = "GPUMIGRATE_HOME=" + home;
  std::vector<char*> environment = {home_is.data(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  const auto begun = Clock::now();
  pid_t pid = 0;
  const int failure =
      ::posix_spawn(&pid, program.c_str(), &files, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&files);
  if (failure != 0) return Error(ErrorCode::kUnavailable, "Starting " + program + " failed");
  int status = 0;
  ::waitpid(pid, &status, 0);
  const double took = ms_since(begun);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return Error(ErrorCode::kInternal, "run --dry-run failed: " + std::to_string(status));
  return took;
}

json row_of(double much, double nothing) {
  return {{"much", much}, {"nothing", nothing}, {"ratio", much / nothing}};
}

// Returns medians of calls at both sites in turns. The site that is called first alternates, too.
template <class Call>
Result<json> in_turns(const Site& much, const Site& nothing, unsigned count, Call call) {
  std::vector<double> with, without;
  for (unsigned i = 0; i < count; ++i) {
    const bool first = i % 2 == 0;
    CKPT_TRY(a, call(first ? much : nothing));
    CKPT_TRY(b, call(first ? nothing : much));
    with.push_back(first ? a : b);
    without.push_back(first ? b : a);
  }
  return row_of(median(with), median(without));
}

Result<std::int64_t> count_rows(coordinator::Database& database, const std::string& table) {
  CKPT_TRY(statement, database.prepare("SELECT COUNT(*) FROM " + table));
  CKPT_TRYV(statement.next());
  return statement.integer(0);
}

Result<json> count_all(coordinator::Database& database) {
  json counts;
  for (const char* table : {"jobs", "migrations", "events"}) {
    CKPT_TRY(rows, count_rows(database, table));
    counts[table] = rows;
  }
  return counts;
}

}  // namespace

json measure_idling(const CoordinatorProcess& coordinator, std::chrono::seconds span) {
  const double cpu = coordinator.cpu_seconds();
  const std::uint64_t writes = coordinator.writes();
  const auto begun = Clock::now();
  std::this_thread::sleep_for(span);
  const double seconds = ms_since(begun) / 1e3;
  return {{"seconds", seconds},
          {"percent_of_a_core", 100 * (coordinator.cpu_seconds() - cpu) / seconds},
          {"writes_per_minute", static_cast<double>(coordinator.writes() - writes) * 60 / seconds},
          {"resident_mib", coordinator.resident_mib()}};
}

Result<json> measure_dry_runs(const Programs& programs, const Site& much, const Site& nothing,
                              const DryRuns& counts) {
  const auto call = [](const Site& site) {
    return timed(200, [&] { return site.coordinator->post("/v1/jobs", kDryRun); });
  };
  const auto command = [&](const Site& site) { return run_command(programs.command, site.home); };
  const double cpu_much = much.coordinator->cpu_seconds();
  const double cpu_nothing = nothing.coordinator->cpu_seconds();
  CKPT_TRY(calls, in_turns(much, nothing, counts.calls, call));
  const double used_much = (much.coordinator->cpu_seconds() - cpu_much) * 1e3 / counts.calls;
  const double used_nothing = (nothing.coordinator->cpu_seconds() - cpu_nothing) * 1e3 / counts.calls;
  CKPT_TRY(commands, in_turns(much, nothing, counts.commands, command));
  return json{{"api_ms", std::move(calls)},
              {"command_ms", std::move(commands)},
              {"coordinator_cpu_ms", row_of(used_much, used_nothing)}};
}

Result<json> measure_long_polls(const Site& site, unsigned polls) {
  const CoordinatorProcess& coordinator = *site.coordinator;
  const std::string job = SimulatedNodes::job_of(0, 0, 0);
  const auto begun = coordinator.post("/v1/jobs/" + job + "/migrate", R"({"to":"node-1"})");
  if (begun.status != 202) return Error(ErrorCode::kInternal, "No migration began: " + begun.body);
  const std::string migration = begun.json().value("id", "");
  std::vector<UniqueFd> waiting;
  for (unsigned i = 0; i < polls; ++i)
    waiting.push_back(coordinator::test::begin_request(coordinator.api_address(), coordinator.token(),
                                                       "/v1/events?follow_ms=60000&since=1000000000000"));
  CKPT_TRY(jobs, timed(200, [&] { return coordinator.get("/v1/jobs?limit=500"); }));
  CKPT_TRY(abort,
           timed(202, [&] { return coordinator.post("/v1/migrations/" + migration + "/abort", "{}"); }));
  CKPT_TRY(drain, timed(202, [&] { return coordinator.post("/v1/drains", R"({"place":"node-2"})"); }));
  std::size_t still = 0;
  for (const UniqueFd& fd : waiting) {
    pollfd look{fd.get(), POLLIN, 0};
    still += fd && ::poll(&look, 1, 0) == 0 ? 1 : 0;
  }
  return json{{"polls", polls},
              {"still_waiting", still},
              {"jobs_ms", jobs},
              {"abort_ms", abort},
              {"drain_ms", drain}};
}

Result<json> measure_leaving(const CoordinatorProcess& coordinator, const std::string& home) {
  CKPT_TRY(database, coordinator::Database::open(home + "/coordinator/state.db"));
  CKPT_TRY(counts, count_all(database));
  const json first = counts;
  const auto begun = Clock::now();
  const double cpu = coordinator.cpu_seconds();
  auto changed = begun;
  auto counted = begun;
  double longest = 0;
  while (Clock::now() < changed + kUnchanged) {
    if (Clock::now() > begun + kLeaving) return Error(ErrorCode::kTimedOut, "Rows go on leaving");
    CKPT_TRY(took, timed(200, [&] { return coordinator.get("/v1/status"); }));
    longest = std::max(longest, took);
    std::this_thread::sleep_for(kBetweenProbes);
    if (Clock::now() < counted + kBetweenCounts) continue;
    counted = Clock::now();
    CKPT_TRY(now, count_all(database));
    if (now != counts) changed = counted;
    counts = std::move(now);
  }
  const double used = coordinator.cpu_seconds() - cpu;
  double quiet = 0;
  for (unsigned i = 0; i < kQuietProbes; ++i) {
    CKPT_TRY(took, timed(200, [&] { return coordinator.get("/v1/status"); }));
    quiet = std::max(quiet, took);
    std::this_thread::sleep_for(kBetweenProbes);
  }
  return json{{"when_it_listened", first},
              {"left", counts},
              {"seconds", std::chrono::duration<double>(changed - begun).count()},
              {"cpu_seconds", used},
              {"longest_call_ms", longest},
              {"longest_call_afterwards_ms", quiet}};
}

}  // namespace ckpt::scale
