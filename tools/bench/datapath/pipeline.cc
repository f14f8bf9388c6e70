// SPDX-License-Identifier: Apache-2.0
// The section "pipeline": whole rounds between two processes. They are compared with a plain tool that copies
// the same bytes, and with the bound of the cores. For the bound, each stage of a round runs alone in the
// same turns. The bytes are random, so that no codec helps.
#include <algorithm>
#include <random>

#include "libckpt/datapath/engine/target/receiver.h"
#include "tools/bench/bench.h"
#include "tools/bench/datapath/stages.h"
#include "tools/bench/datapath/streams.h"
#include "tools/bench/measuring/engine_pair.h"
#include "tools/bench/measuring/measure.h"

namespace ckpt::bench {
namespace {

constexpr double kUnlimitedGoal = 0.85;
constexpr double kLimitedGoal = 0.97;
constexpr std::uint64_t kLimit = std::uint64_t{1} << 30;
constexpr double kHotShare = 0.02;
constexpr std::size_t kChunkBytes = engine::kDefaultChunkBytes;

// The rates of the runs of one kind in GB/s, and their processor time in seconds per GB.
struct Kept {
  Runs rate, seconds_per_gb;
  void add(const RoundRun& run, std::uint64_t bytes) {
    rate.push_back(rate_of(bytes, run.wall));
    seconds_per_gb.push_back(static_cast<double>(run.cpu) /
                             static_cast<double>(std::max<std::uint64_t>(bytes, 1)));
  }
  // Removes the warm-up run.
  void drop_first() {
    rate.erase(rate.begin());
    seconds_per_gb.erase(seconds_per_gb.begin());
  }
};

// Writes new bytes into the share kHotShare of the chunks, at random places, as a job with a small hot set
// does between two rounds. Returns the number of bytes written.
Result<std::uint64_t> heat(DeviceBuffer& memory, std::uint64_t seed) {
  std::vector<std::byte> chunk(kChunkBytes);
  std::vector<std::uint64_t> places(memory.bytes() / kChunkBytes);
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i * kChunkBytes;
  std::shuffle(places.begin(), places.end(), std::mt19937_64(seed));
  places.resize(
      std::max<std::size_t>(static_cast<std::size_t>(static_cast<double>(places.size()) * kHotShare), 1));
  for (const std::uint64_t place : places) {
    fill_random(std::span(chunk), seed * 31 + place);
    CKPT_TRYV(memory.write(place, chunk));
  }
  return places.size() * kChunkBytes;
}

class PipelineBench {
 public:
  PipelineBench(const BenchOptions& options, Report& report, Section& stages, Section& section)
      : options_(options), report_(report), stages_section_(stages), section_(section) {}

  Result<void> run() {
    CKPT_TRY(stages, Stages::create(options_, report_.facts().cores));
    CKPT_TRY(pair, EnginePair::create(options_.program, options_.bytes));
    CKPT_TRYV(pair->memory().fill_random(11));
    CKPT_TRYV(first_rounds(*pair, *stages));
    CKPT_TRYV(stages->finish());
    CKPT_TRYV(limited(*pair));
    return pair->finish();
  }

 private:
  struct Rounds {
    Path path;
    const char* where;
    Path actual = path;  // the path of the payloads; kTcp also within a machine, if the target cannot read
                         // the source's memory
    Kept first{}, second{};
    Runs scan_share{};
  };

  // Runs a first round, and then a second round with a hot set. Both are verified at the end.
  Result<void> run_rounds(EnginePair& pair, Rounds& rounds) {
    CKPT_TRY(session, pair.begin({.same_host = rounds.path == Path::kSameHost}));
    rounds.actual = session->same_host() ? Path::kSameHost : Path::kTcp;
    CKPT_TRY(whole, session->round());
    rounds.first.add(whole, whole.report.state_bytes);
    CKPT_TRY(hot, heat(pair.memory(), ++seed_));
    CKPT_TRY(rest, session->round());
    if (rest.report.sent_bytes < hot)
      return Error(ErrorCode::kInternal, "A round missed chunks that had changed");
    rounds.second.add(rest, rest.report.state_bytes);
    rounds.scan_share.push_back(static_cast<double>(rest.report.scan_end_ns - rest.report.begin_ns) /
                                static_cast<double>(std::max<Nanos>(rest.wall, 1)));
    CKPT_TRYV(session->verify());
    return session->end();
  }

  Result<void> first_rounds(EnginePair& pair, Stages& stages) {
    CKPT_TRY(tcp, ByteStreams::start(options_.program, ByteStreams::Kind::kTcp));
    Rounds same_host{Path::kSameHost, "within a machine"};
    Rounds far{Path::kTcp, "over TCP"};
    const auto plain = [&, raw = tcp.get()](unsigned connections) -> Side {
      return [this, raw, connections]() -> Result<double> {
        CKPT_TRY(run, raw->run(connections, options_.bytes));
        return rate_of(options_.bytes, run.wall);
      };
    };
    const auto ours = [&](Rounds& rounds) -> Side {
      return [this, &pair, &rounds]() -> Result<double> {
        CKPT_TRYV(run_rounds(pair, rounds));
        return rounds.first.rate.back();
      };
    };
    const Side alone = [&]() -> Result<double> {
      CKPT_TRYV(stages.turn());
      return 0.0;
    };
    const unsigned lanes = engine::default_lanes();
    CKPT_TRY(runs, interleave(options_.pairs, {plain(1), plain(lanes), alone, ours(same_host), ours(far)}));
    CKPT_TRYV(tcp->finish());
    stages.drop_first();
    stages.fill(stages_section_);
    section_.add_row("plain TCP stream, 1 connection", {spread_of(runs[0])});
    section_.add_row("plain TCP stream, " + std::to_string(lanes) + " connections, as many as lanes",
                     {spread_of(runs[1])});
    const Runs& best = spread_of(runs[0]).median >= spread_of(runs[1]).median ? runs[0] : runs[1];
    for (Rounds* rounds : {&same_host, &far}) {
      rounds->first.drop_first();
      rounds->second.drop_first();
      rounds->scan_share.erase(rounds->scan_share.begin());
      report_rounds(*rounds, best, stages);
    }
    return ok();
  }

  void report_rounds(const Rounds& rounds, const Runs& plain, const Stages& stages) {
    const std::string where = rounds.where;
    const Runs bound = stages.bounds(rounds.actual);
    Runs least = plain;
    for (std::size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], bound[i]);
    section_.add_row("bound of the cores " + where + ", of the same turn",
                     {spread_of(bound), {}, {}, single(stages.seconds(rounds.actual))});
    report_without_scan(rounds, bound, stages);
    section_.add_row(
        "first round " + where + ", unlimited",
        {spread_of(rounds.first.rate), spread_of(ratios_of(rounds.first.rate, plain)),
         spread_of(ratios_of(rounds.first.rate, bound)), spread_of(rounds.first.seconds_per_gb)});
    section_.add_row("second round " + where + ", 2 % of the chunks changed (state bytes)",
                     {spread_of(rounds.second.rate),
                      {},
                      {},
                      spread_of(rounds.second.seconds_per_gb),
                      spread_of(rounds.scan_share)});
    const Spread share = spread_of(ratios_of(rounds.first.rate, least));
    section_.add_row("the same, relative to the lesser of plain tool and bound, " + where, {{}, share});
    // On one machine the target reads the source's memory. Over TCP both ends share the machine's cores,
    // unlike two nodes (adr/0022).
    if (rounds.path == Path::kSameHost)
      section_.add_goal("first round " + where + " / the lesser of plain tool and bound", share.median,
                        Relation::kAtLeast, kUnlimitedGoal);
  }

  // Reports the bound without the scan. A first round does not scan, because the target holds nothing. The
  // goal's bound includes the scan nevertheless.
  void report_without_scan(const Rounds& rounds, const Runs& bound, const Stages& stages) {
    const double seconds = stages.seconds(rounds.actual);
    const double share = 1 - stages.scan_seconds() / seconds;
    Runs without = bound;
    for (double& rate : without) rate /= share;
    section_.add_row(
        "the same without the scan; first round of it",
        {spread_of(without), {}, spread_of(ratios_of(rounds.first.rate, without)), single(seconds * share)});
  }

  Result<void> limited(EnginePair& pair) {
    Kept results;
    const Side ours = [&]() -> Result<double> {
      CKPT_TRY(session, pair.begin({.bandwidth = kLimit}));
      CKPT_TRY(run, session->round());
      results.add(run, run.report.state_bytes);
      CKPT_TRYV(session->end());
      return results.rate.back();
    };
    CKPT_TRY(runs, interleave(options_.pairs, {ours}));
    results.drop_first();
    const double limit = static_cast<double>(kLimit) * 1e-9;
    const Spread share = spread_of(ratios_of(runs[0], Runs(runs[0].size(), limit)));
    section_.add_row("limit of 1 GiB/s", {single(limit)});
    section_.add_row("first round at that limit",
                     {spread_of(runs[0]), share, {}, spread_of(results.seconds_per_gb)});
    section_.add_goal("first round at 1 GiB/s / the limit", share.median, Relation::kAtLeast, kLimitedGoal);
    return ok();
  }

  const BenchOptions& options_;
  Report& report_;
  Section& stages_section_;
  Section& section_;
  std::uint64_t seed_ = 100;
};

}  // namespace

Result<void> bench_pipeline(const BenchOptions& options, Report& report) {
  Section& stages = add_stages_section(report);
  Section& section =
      report.add_section("pipeline",
                         "Rounds from one process to another (random bytes, no codec), as between "
                         "GPUs of one node and as between nodes, interleaved with a plain TCP "
                         "stream of the same bytes and with the stages");
  section.add_note(
      "over TCP both ends share this machine's cores and memory, unlike two nodes: shown without a goal "
      "(docs/adr/0022)");
  section.set_columns({{"rate", "GB/s"},
                       {"of the plain tool or limit", ""},
                       {"of the cores' bound", ""},
                       {"processor time", "s/GB"},
                       {"share of the scan", ""}});
  PipelineBench bench(options, report, stages, section);
  return bench.run();
}

}  // namespace ckpt::bench
