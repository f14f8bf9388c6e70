// SPDX-License-Identifier: Apache-2.0
// gpumigrate-bench sweeps: the downtime of hotset as a function of the share of changed state, and of the
// link's rate.
#include "tools/bench/jobs/sweeps.h"

#include <algorithm>

#include "tools/bench/bench.h"
#include "tools/bench/jobs/jobs.h"

namespace ckpt::bench {
namespace {

// The shares of the 4 KiB pages that a step changes, in percent.
constexpr const char* kShares[] = {"0.5", "1", "2", "5", "10", "20"};
constexpr const char* kLimits[] = {"0.25", "0.5", "1", "2", "4"};  // the limits of the link's rate in GiB/s
constexpr std::uint64_t kMinBytes = std::uint64_t{4} << 20;

std::uint64_t bytes_of(const BenchOptions& options) {
  return std::max(options.bytes / 4, kMinBytes);
}

void add_point(Section& section, const std::string& name, const std::string& value,
               const std::vector<MovePair>& pairs) {
  const std::vector<Move> live = live_moves(pairs);
  std::vector<double> ratios;
  for (const MovePair& pair : pairs) ratios.push_back(pair.live.downtime_ms / pair.stop_copy.downtime_ms);
  const auto downtime = [](const Move& m) { return m.downtime_ms; };
  section.add_row(name, {single(std::stod(value)), spread_over(live, downtime),
                         spread_over(stop_copy_moves(pairs), downtime),
                         spread_over(live, [](const Move& m) { return m.bound_ms; }), spread_of(ratios),
                         spread_over(live, [](const Move& m) {
                           return m.dirty_bytes / std::max(1.0, m.rounds - 1) / (1 << 20);
                         })});
}

std::vector<Column> columns_of(const char* first, const char* unit) {
  return {{first, unit},        {kLiveColumn, "ms"},      {kStopCopyColumn, "ms"},
          {kBoundColumn, "ms"}, {"live / stop-copy", ""}, {"sent again each round", "MiB"}};
}

Result<std::string> start(Cluster& cluster, std::uint64_t bytes, const char* share) {
  CKPT_TRY(job, cluster.run_job("hotset", hotset_arguments(bytes, share)));
  CKPT_TRYV(cluster.wait_for_steps(job, 1));
  return std::move(job);
}

Result<void> sweep_dirty(Cluster& cluster, const BenchOptions& options, Section& section) {
  for (const char* share : kShares) {
    CKPT_TRY(job, start(cluster, bytes_of(options), share));
    std::vector<MovePair> pairs;
    for (unsigned turn = 0; turn < options.pairs; ++turn) {
      CKPT_TRY(pair, move_pair(cluster, job, {"--bandwidth", "1GiB/s"}, turn));
      pairs.push_back(pair);
    }
    CKPT_TRYV(cluster.stop(job));
    add_point(section, std::string(share) + " %", share, pairs);
  }
  return ok();
}

Result<void> sweep_link(Cluster& cluster, const BenchOptions& options, Section& section) {
  CKPT_TRY(job, start(cluster, bytes_of(options), "2"));
  std::vector<std::vector<MovePair>> all(std::size(kLimits));
  for (unsigned turn = 0; turn < options.pairs; ++turn) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      CKPT_TRY(pair, move_pair(cluster, job, {"--bandwidth", std::string(kLimits[i]) + "GiB/s"}, turn));
      all[i].push_back(pair);
    }
  }
  CKPT_TRYV(cluster.stop(job));
  for (std::size_t i = 0; i < all.size(); ++i)
    add_point(section, std::string(kLimits[i]) + " GiB/s", kLimits[i], all[i]);
  return ok();
}

}  // namespace

Result<void> bench_sweeps(const BenchOptions& options, Report& report) {
  const std::string what =
      "Downtime of hotset --pattern random, " + std::to_string(bytes_of(options) >> 20) + " MiB, ";
  CKPT_TRY(cluster, Cluster::start(options.program_folder, options.bytes));
  Section& dirty = report.add_section(
      kDirtySweep,
      what + "against the share of its 4 KiB pages that each step of 20 ms rewrites, at 1 GiB/s");
  dirty.set_columns(columns_of(kDirtyColumn, "%"));
  CKPT_TRYV(sweep_dirty(*cluster, options, dirty));
  Section& link =
      report.add_section(kLinkSweep, what + "with 2 % rewritten each step, against the limit of the link");
  link.set_columns(columns_of(kLinkColumn, "GiB/s"));
  return sweep_link(*cluster, options, link);
}

}  // namespace ckpt::bench
