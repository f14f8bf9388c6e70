// SPDX-License-Identifier: Apache-2.0
// measure_scale prints the resource use of a coordinator with a long history, and one JSON object as the last
// line. Exit codes: 0 all limits are met, 1 a limit is exceeded, 2 the measurement failed, 64 usage.
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cstdio>
#include <filesystem>

#include "libckpt/base/clock.h"
#include "libckpt/command_line/command_line.h"
#include "tests/scale/phases.h"
#include "tests/unit/coordinator/support/past.h"

namespace ckpt::scale {
namespace {

using coordinator::test::Past;
using nlohmann::json;

constexpr double kMaxIdlePercent = 2;
constexpr double kMaxRatio = 2;
constexpr std::int64_t kDayMs = std::int64_t{24} * 3600 * 1000;
constexpr const char* kEverythingStays =
    "closed_migrations_kept = 1000000\nevents_kept = 1000000\nended_jobs_kept = 1000000\n"
    "history_kept_days = 0\n";

struct Options {
  std::string build = "build";
  Past past{1'000, 20'000, 100'000};
  NodesShape shape;
  unsigned seconds = 30;
  unsigned polls = 300;
  DryRuns dry_runs;
};

// A folder that is removed at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = std::filesystem::temp_directory_path().string() + "/scaleXXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Result<Site> open_site(const Options& options, const std::string& home, const std::string& settings) {
  Site site;
  site.home = home;
  CKPT_TRY(coordinator,
           CoordinatorProcess::start(options.build + "/bin/gpumigrate-coordinator", home, settings));
  site.coordinator = std::move(coordinator);
  site.nodes = std::make_unique<SimulatedNodes>(*site.coordinator, options.shape);
  CKPT_TRYV(site.nodes->start());
  return site;
}

Result<json> measure_what_stays(const Options& options, const std::string& much_home,
                                const std::string& nothing_home) {
  CKPT_TRY(much, open_site(options, much_home, kEverythingStays));
  CKPT_TRY(nothing, open_site(options, nothing_home, kEverythingStays));
  const std::chrono::seconds span(options.seconds);
  json out;
  out["start_seconds"] = {{"much", much.coordinator->start_seconds()},
                          {"nothing", nothing.coordinator->start_seconds()}};
  out["idle"]["much"] = measure_idling(*much.coordinator, span);
  out["idle"]["nothing"] = measure_idling(*nothing.coordinator, span);
  much.nodes->fall_silent();
  nothing.nodes->fall_silent();
  const Programs programs{"", options.build + "/bin/gpumigrate"};
  CKPT_TRY(dry_runs, measure_dry_runs(programs, much, nothing, options.dry_runs));
  out["dry_run"] = dry_runs;
  // This measurement is the last, since the operations that it starts change one of the two coordinators.
  CKPT_TRY(polls, measure_long_polls(much, options.polls));
  out["long_polls"] = polls;
  return out;
}

Result<json> measure(const Options& options) {
  const Folder folder;
  const std::string much = folder.path() + "/much";
  CKPT_TRYV(coordinator::test::write_past(much + "/coordinator", options.past));
  // The store is copied, since a coordinator with nodes adds to the store.
  const std::string again = folder.path() + "/again";
  std::error_code failure;
  std::filesystem::copy(much, again, std::filesystem::copy_options::recursive, failure);
  if (failure) return Error(ErrorCode::kIo, "Copying the store failed: " + failure.message());
  CKPT_TRY(out, measure_what_stays(options, much, folder.path() + "/nothing"));
  CKPT_TRY(coordinator, CoordinatorProcess::start(options.build + "/bin/gpumigrate-coordinator", again, ""));
  CKPT_TRY(leaving, measure_leaving(*coordinator, again));
  out["leaving"] = leaving;
  return std::move(out);
}

bool print(const json& out) {
  const auto line = [](const char* what, double value, const char* unit) {
    std::printf("%-58s %10.3f %s\n", what, value, unit);
  };
  const json& idle = out["idle"];
  line("idle, much behind it: of a core", idle["much"]["percent_of_a_core"], "%");
  line("idle, nothing behind it: of a core", idle["nothing"]["percent_of_a_core"], "%");
  line("idle, much behind it: writes", idle["much"]["writes_per_minute"], "per minute");
  line("memory, much behind it", idle["much"]["resident_mib"], "MiB");
  line("memory, nothing behind it", idle["nothing"]["resident_mib"], "MiB");
  line("start, much behind it", out["start_seconds"]["much"], "s");
  for (const char* what : {"api_ms", "command_ms", "coordinator_cpu_ms"}) {
    const json& row = out["dry_run"][what];
    std::printf("run --dry-run, %-43s %10.3f ms, %.3f ms with nothing behind it: %.2f times\n", what,
                row["much"].get<double>(), row["nothing"].get<double>(), row["ratio"].get<double>());
  }
  const json& polls = out["long_polls"];
  std::printf("%u long polls wait, %u at the end\n", polls["polls"].get<unsigned>(),
              polls["still_waiting"].get<unsigned>());
  line("meanwhile jobs", polls["jobs_ms"], "ms");
  line("meanwhile abort", polls["abort_ms"], "ms");
  line("meanwhile drain", polls["drain_ms"], "ms");
  const json& leaving = out["leaving"];
  std::printf("default settings leave %s\n", leaving["left"].dump().c_str());
  line("that took", leaving["seconds"], "s");
  line("and processor time", leaving["cpu_seconds"], "s");
  line("longest other call meanwhile", leaving["longest_call_ms"], "ms");
  line("longest other call afterwards", leaving["longest_call_afterwards_ms"], "ms");
  const bool holds = idle["much"]["percent_of_a_core"].get<double>() < kMaxIdlePercent &&
                     out["dry_run"]["api_ms"]["ratio"].get<double>() < kMaxRatio &&
                     out["dry_run"]["command_ms"]["ratio"].get<double>() < kMaxRatio &&
                     polls["still_waiting"] == polls["polls"];
  std::printf("limits: below %.0f %% of a core, below %.0f times, all polls wait on: %s\n%s\n",
              kMaxIdlePercent, kMaxRatio, holds ? "held" : "NOT HELD", out.dump().c_str());
  return holds;
}

int run(int argc, char** argv) {
  Options options;
  CommandLine app("Measures the costs of a coordinator with a long history");
  app.add_option("--build", options.build, "The build folder");
  app.add_option("--seconds", options.seconds, "Seconds of idling");
  app.add_option("--jobs", options.past.jobs, "Jobs that have ended");
  app.add_option("--migrations", options.past.migrations, "Migrations that are closed");
  app.add_option("--events", options.past.events);
  app.add_option("--nodes", options.shape.nodes).in_range(3, 1000);
  app.add_option("--polls", options.polls);
  int period_ms = 1000;
  app.add_option("--period", period_ms, "Milliseconds between two reports of a node");
  if (const auto end = app.parse(argc, argv)) return end->print() == 0 ? 0 : 64;
  options.shape.period = std::chrono::milliseconds(period_ms);
  const std::int64_t now = wall_clock_ms();
  options.past.environment_bytes = 2048;
  options.past.reports = true;
  options.past.ended_ms = now - 40 * kDayMs;
  options.past.first_event_ms = now - 60 * kDayMs;
  options.past.last_event_ms = now;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  spdlog::set_level(spdlog::level::warn);
  const auto out = measure(options);
  if (!out) {
    std::fprintf(stderr, "measure_scale: %s\n", out.error().to_string().c_str());
    return 2;
  }
  return print(*out) ? 0 : 1;
}

}  // namespace
}  // namespace ckpt::scale

int main(int argc, char** argv) {
  return ckpt::scale::run(argc, argv);
}
