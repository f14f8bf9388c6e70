// SPDX-License-Identifier: Apache-2.0
// The section "slow_link": a training job's memory passes through the engine with each codec, at a rate limit
// that leaves the cores idle.
#include <algorithm>

#include "tools/bench/bench.h"
#include "tools/bench/measuring/engine_pair.h"
#include "tools/bench/measuring/float_data.h"
#include "tools/bench/measuring/measure.h"

namespace ckpt::bench {
namespace {

constexpr std::uint64_t kSlowLink = std::uint64_t{200} << 20;
constexpr std::uint64_t kMaxFloatBytes = std::uint64_t{128} << 20;

struct CodecCase {
  const char* name;
  codec::CodecMode mode;
  bool second_round;  // true: the state changes by one step between the rounds, and the shadow memory holds
                      // the whole state
};
constexpr CodecCase kCodecCases[] = {
    {"raw", codec::CodecMode::kRaw, false},
    {"planes", codec::CodecMode::kPlanes, false},
    {"auto", codec::CodecMode::kAuto, false},
    {"difference, second round", codec::CodecMode::kDifference, true},
    {"auto with shadow memory, second round", codec::CodecMode::kAuto, true}};

struct CodecRuns {
  Runs rate, ratio, seconds_per_gb;
};

Result<double> run_codec(EnginePair& pair, const CodecCase& what, const TrainingData& data,
                         CodecRuns& results) {
  CKPT_TRYV(pair.memory().fill_with(bytes_of(what.second_round ? data.before : data.now)));
  SessionSetup setup{false, kSlowLink, what.mode, what.second_round ? pair.memory().bytes() : 0};
  CKPT_TRY(session, pair.begin(setup));
  CKPT_TRY(run, session->round());
  if (what.second_round) {
    CKPT_TRYV(pair.memory().fill_with(bytes_of(data.now)));
    CKPT_TRY(again, session->round());
    run = again;
  }
  CKPT_TRYV(session->verify());
  CKPT_TRYV(session->end());
  const auto sent = static_cast<double>(std::max<std::uint64_t>(run.report.sent_bytes, 1));
  results.rate.push_back(sent / static_cast<double>(std::max<Nanos>(run.wall, 1)));
  results.ratio.push_back(sent / static_cast<double>(std::max<std::uint64_t>(run.report.wire_bytes, 1)));
  results.seconds_per_gb.push_back(static_cast<double>(run.cpu) / sent);
  return results.rate.back();
}

Result<void> measure(const BenchOptions& options, Section& section) {
  const std::uint64_t bytes = std::min(options.bytes, kMaxFloatBytes);
  const TrainingData data =
      make_training_data(std::min<std::uint64_t>(bytes / 16, std::uint64_t{2} << 20), {});
  CKPT_TRY(pair, EnginePair::create(options.program, bytes));
  std::vector<CodecRuns> results(std::size(kCodecCases));
  std::vector<Side> sides;
  for (std::size_t i = 0; i < results.size(); ++i)
    sides.push_back([&, i] { return run_codec(*pair, kCodecCases[i], data, results[i]); });
  CKPT_TRYV(interleave(options.pairs, sides));
  CKPT_TRYV(pair->finish());
  for (CodecRuns& runs : results)
    for (Runs* list : {&runs.rate, &runs.ratio, &runs.seconds_per_gb}) list->erase(list->begin());
  section.add_row("raw bytes at a limit of 200 MiB/s", {single(static_cast<double>(kSlowLink) * 1e-9)});
  for (std::size_t i = 0; i < results.size(); ++i)
    section.add_row(std::string("float data: ") + kCodecCases[i].name,
                    {spread_of(results[i].rate), spread_of(ratios_of(results[i].rate, results[0].rate)),
                     spread_of(results[i].ratio), spread_of(results[i].seconds_per_gb)});
  return ok();
}

}  // namespace

Result<void> bench_slow_link(const BenchOptions& options, Report& report) {
  Section& section = report.add_section("slow_link",
                                        "Rounds of a training job's memory at a limit of 200 MiB/s with each "
                                        "codec, interleaved; rates count uncompressed bytes");
  section.set_columns(
      {{"rate", "GB/s"}, {"of raw", ""}, {"plain / wire bytes", ""}, {"processor time", "s/GB"}});
  return measure(options, section);
}

}  // namespace ckpt::bench
