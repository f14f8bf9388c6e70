// SPDX-License-Identifier: Apache-2.0
// gpumigrate-bench moves: the three examples, moved live and by stop-and-copy, with the bound, every term,
// and the bytes.
#include <cmath>

#include "tools/bench/bench.h"
#include "tools/bench/jobs/jobs.h"

namespace ckpt::bench {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGB = 1e9;
constexpr double kPageBytes = 4096;
constexpr double kHotShare = 0.02;
constexpr double kMaxOfStopCopy = 0.1;
constexpr double kMinOfBound = 0.8;
constexpr double kMinOfLink = 0.85;
constexpr double kMaxExtraBytes = 1.10;
constexpr double kMaxExtraTime = 1.15;

struct Link {
  std::string name;
  Arguments options;
  double bytes_per_second = 0;  // the limit of the link; 0: no limit, and the rate that each move measured is
                                // used
  bool goals = true;  // true if the goals, which are for moves with default options, apply to this link
};

struct Workload {
  std::string name;
  Arguments arguments;
  bool goals = false;  // true if the workload has goals; only hotset and serve have goals
};

// All moves of one workload over one link.
struct Series {
  const Workload* workload = nullptr;
  Link link;
  std::vector<MovePair> pairs;

  [[nodiscard]] bool has_goals() const { return workload->goals && link.goals; }
  [[nodiscard]] std::string name() const { return workload->name + ", " + link.name; }
  [[nodiscard]] bool is_limited() const { return link.bytes_per_second != 0; }
  [[nodiscard]] double link_rate(const Move& move) const {
    return is_limited() ? link.bytes_per_second : move.link_rate;
  }
};

// Returns the links to measure. The weights of serve can be compressed, so serve is also measured without a
// codec to show the codec's time and benefit.
std::vector<Link> links_of(const Workload& workload) {
  std::vector<Link> links = {{"1 GiB/s", {"--bandwidth", "1GiB/s"}, kGiB}, {"unlimited", {}, 0}};
  if (workload.name == "serve")
    links.push_back({"1 GiB/s, --codec raw", {"--bandwidth", "1GiB/s", "--codec", "raw"}, kGiB, false});
  return links;
}

std::vector<Workload> all_workloads(std::uint64_t bytes) {
  return {{"hotset", hotset_arguments(bytes, "2"), true},
          {"serve", serve_arguments(bytes), true},
          {"charlm", charlm_arguments(), false}};
}

// Measures the moves. Each turn uses every link, so that other load on the machine affects all links alike.
Result<std::vector<Series>> measure(Cluster& cluster, const Workload& workload, unsigned pairs) {
  std::vector<Series> all;
  for (const Link& link : links_of(workload)) all.push_back({&workload, link, {}});
  CKPT_TRY(job, cluster.run_job(workload.name, workload.arguments));
  CKPT_TRYV(cluster.wait_for_steps(job, 1));
  CKPT_TRYV(cluster.migrate_done(job, {"--live"}));  // not counted, because the movers connect for the first
                                                     // time
  for (unsigned turn = 0; turn < pairs; ++turn) {
    for (Series& series : all) {
      CKPT_TRY(pair, move_pair(cluster, job, series.link.options, turn));
      series.pairs.push_back(pair);
    }
  }
  CKPT_TRYV(cluster.stop(job));
  return all;
}

std::vector<double> ratios_to_stop_copy(const Series& series) {
  std::vector<double> ratios;
  for (const MovePair& pair : series.pairs)
    ratios.push_back(pair.live.downtime_ms / pair.stop_copy.downtime_ms);
  return ratios;
}

void add_downtime_goals(Section& section, const Series& series) {
  const std::vector<Move> live = live_moves(series.pairs);
  const std::vector<Move> stopped = stop_copy_moves(series.pairs);
  if (series.is_limited()) {
    section.add_goal(series.name() + ": live / stop-copy downtime",
                     spread_of(ratios_to_stop_copy(series)).median, Relation::kAtMost, kMaxOfStopCopy);
  }
  section.add_goal(series.name() + ": live, bound / downtime",
                   spread_over(live, [](const Move& m) { return m.bound_ms / m.downtime_ms; }).median,
                   Relation::kAtLeast, kMinOfBound);
  if (series.is_limited()) {
    section.add_goal(series.name() + ": stop-copy, state / downtime / link",
                     spread_over(stopped,
                                 [&](const Move& m) {
                                   return m.state_bytes / (m.downtime_ms / 1e3) / series.link_rate(m);
                                 })
                         .median,
                     Relation::kAtLeast, kMinOfLink);
  }
}

std::string binding_terms(const std::vector<Move>& moves) {
  std::map<std::string, int> counts;
  for (const Move& move : moves) ++counts[move.bound_by];
  std::string text;
  for (const auto& [name, count] : counts)
    text += (text.empty() ? "" : ", ") + name + " " + std::to_string(count) + "x";
  return text;
}

void add_downtime_rows(Section& section, const Series& series, const std::string& kind,
                       const std::vector<Move>& moves) {
  const bool live = kind == "live";
  const auto of_link = [&](const Move& m) {
    return m.state_bytes / (m.downtime_ms / 1e3) / series.link_rate(m);
  };
  section.add_row(series.name() + ", " + kind,
                  {spread_over(moves, [](const Move& m) { return m.downtime_ms; }),
                   live ? Cell(spread_of(ratios_to_stop_copy(series))) : Cell(),
                   spread_over(moves, [](const Move& m) { return m.bound_ms; }),
                   spread_over(moves, [](const Move& m) { return m.bound_ms / m.downtime_ms; }),
                   live ? Cell() : Cell(spread_over(moves, of_link)),
                   spread_over(moves, [](const Move& m) { return m.total_ms; })});
}

void report_downtime(Report& report, const std::vector<Series>& all, std::uint64_t bytes, bool software) {
  Section& section = report.add_section(
      "downtime", "Downtime of hotset --hot 2% --pattern random and serve (" + std::to_string(bytes >> 20) +
                      " MiB of state each) and charlm (1 M parameters, which all change each step), moved "
                      "live and by stop-and-copy alternately, each with its bound");
  section.set_columns({{"downtime", "ms"},
                       {"live / stop-copy", ""},
                       {"bound", "ms"},
                       {"bound / downtime", ""},
                       {"state / downtime / link", ""},
                       {"total", "ms"}});
  std::string bound_by;
  for (const Series& series : all) {
    bound_by +=
        (bound_by.empty() ? "" : "; ") + series.name() + ": " + binding_terms(live_moves(series.pairs));
    add_downtime_rows(section, series, "live", live_moves(series.pairs));
    add_downtime_rows(section, series, "stop-copy", stop_copy_moves(series.pairs));
    if (series.has_goals()) add_downtime_goals(section, series);
  }
  section.add_note("the largest term of the live moves' bound: " + bound_by);
  section.add_note(
      "bound = quiesce + max(state / scan rate, bytes of the final round / link rate) + commit + resume, "
      "with the rates that the move itself measured; total includes the standby's start");
  if (software)
    section.add_note(
        "software driver: one pool of cores does the work of both GPUs and of the link, so the two scans at "
        "the barrier, which two GPUs run at once, share it");
}

void report_terms(Report& report, const std::vector<Series>& all) {
  Section& section = report.add_section(
      "downtime_terms",
      "Parts of the downtime of the same moves, in their order; scan and copy are the final round's busy "
      "times at the source, which overlap; the rates are those of the move");
  section.set_columns({{"quiesce", "ms"},
                       {"final", "ms"},
                       {"verify", "ms"},
                       {"commit", "ms"},
                       {"restore", "ms"},
                       {"resume", "ms"},
                       {"scan", "ms"},
                       {"copy", "ms"},
                       {"link", "GB/s"},
                       {"scan rate", "GB/s"}});
  const auto add = [&](const std::string& name, const std::vector<Move>& moves) {
    section.add_row(name, {spread_over(moves, [](const Move& m) { return m.quiesce_ms; }),
                           spread_over(moves, [](const Move& m) { return m.final_ms; }),
                           spread_over(moves, [](const Move& m) { return m.verify_ms; }),
                           spread_over(moves, [](const Move& m) { return m.commit_ms; }),
                           spread_over(moves, [](const Move& m) { return m.restore_ms; }),
                           spread_over(moves, [](const Move& m) { return m.resume_ms; }),
                           spread_over(moves, [](const Move& m) { return m.scan_ms; }),
                           spread_over(moves, [](const Move& m) { return m.copy_ms; }),
                           spread_over(moves, [](const Move& m) { return m.link_rate / kGB; }),
                           spread_over(moves, [](const Move& m) { return m.scan_rate / kGB; })});
  };
  for (const Series& series : all) {
    add(series.name() + ", live", live_moves(series.pairs));
    add(series.name() + ", stop-copy", stop_copy_moves(series.pairs));
  }
}

// Returns the bytes of chunks that were sent again, relative to the bytes of pages that changed before each
// of these rounds. The set of pages that hotset changes is fixed, and a round of a state worth moving is
// longer than a step. So the whole set has changed before each of these rounds.
double amplification(const Move& move) {
  const double hot_pages = std::round(kHotShare * move.state_bytes / kPageBytes);
  return move.rounds > 1 ? move.dirty_bytes / ((move.rounds - 1) * hot_pages * kPageBytes) : 0;
}

void report_bytes(Report& report, const std::vector<Series>& all,
                  const std::map<std::string, Phases>& phases) {
  Section& section = report.add_section(
      "bytes",
      "Bytes and time of the same live moves; copying: from the first round's begin to the commit, without "
      "the standby's start; amplification: bytes of changed chunks over bytes of changed 4 KiB pages "
      "(slightly too high where the barrier ended a round early: its bytes count, but the round does not)");
  section.set_columns({{"state", "MiB"},
                       {"sent again", "MiB"},
                       {"sent / (state + changed)", ""},
                       {"wire / sent", ""},
                       {"amplification", ""},
                       {"rounds", ""},
                       {"copying", "ms"},
                       {"copying / (state / link)", ""}});
  for (const Series& series : all) {
    const std::vector<Move> moves = live_moves(series.pairs);
    const auto copying = [&](const Move& m) {
      const auto at = phases.find(m.id);
      return at == phases.end() ? 0.0 : at->second.committed - at->second.precopy;
    };
    const auto extra_bytes = [](const Move& m) { return m.sent_bytes / (m.state_bytes + m.dirty_bytes); };
    const auto extra_time = [&](const Move& m) { return copying(m) * series.link_rate(m) / m.state_bytes; };
    const bool hotset = series.workload->name == "hotset";
    section.add_row(series.name(),
                    {spread_over(moves, [](const Move& m) { return m.state_bytes / kMiB; }),
                     spread_over(moves, [](const Move& m) { return m.dirty_bytes / kMiB; }),
                     spread_over(moves, extra_bytes),
                     spread_over(moves, [](const Move& m) { return m.wire_bytes / m.sent_bytes; }),
                     hotset ? Cell(spread_over(moves, amplification)) : Cell(),
                     spread_over(moves, [](const Move& m) { return m.rounds; }),
                     spread_over(moves, [&](const Move& m) { return copying(m) * 1e3; }),
                     spread_over(moves, extra_time)});
    if (!series.has_goals()) continue;
    section.add_goal(series.name() + ": sent / (state + changed)", spread_over(moves, extra_bytes).median,
                     Relation::kAtMost, kMaxExtraBytes);
    if (series.workload->name == "serve" && series.is_limited())
      section.add_goal(series.name() + ": copying / (state / link)", spread_over(moves, extra_time).median,
                       Relation::kAtMost, kMaxExtraTime);
  }
}

}  // namespace

Result<void> bench_moves(const BenchOptions& options, Report& report) {
  const std::vector<Workload> workloads = all_workloads(options.bytes);
  CKPT_TRY(cluster, Cluster::start(options.program_folder, options.bytes));
  std::vector<Series> all;
  for (const Workload& workload : workloads) {
    CKPT_TRY(measured, measure(*cluster, workload, options.pairs));
    all.insert(all.end(), measured.begin(), measured.end());
  }
  CKPT_TRY(phases, cluster->phases());
  report_downtime(report, all, options.bytes, cluster->software_gpu());
  report_terms(report, all);
  report_bytes(report, all, phases);
  return ok();
}

}  // namespace ckpt::bench
