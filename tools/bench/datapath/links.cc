// SPDX-License-Identifier: Apache-2.0
// The section "links": the memory of a training job is moved at the rates of links between nodes, with the
// codec that the sender chooses. The copying time is the first round. Then one training step changes all
// memory. The pause is the final round with the comparison of both sides. The pause is the part of a downtime
// that codecs can change.
#include <algorithm>

#include "tools/bench/bench.h"
#include "tools/bench/measuring/engine_pair.h"
#include "tools/bench/measuring/float_data.h"
#include "tools/bench/measuring/measure.h"

namespace ckpt::bench {
namespace {

constexpr std::uint64_t kMaxFloatBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kMaxParameters = std::uint64_t{1} << 20;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

struct LinkCase {
  const char* name;
  std::uint64_t bytes_per_second;  // the link's rate; 0: unlimited
  bool shadow;                     // true if the shadow memory holds the whole state
};
constexpr LinkCase kLinkCases[] = {
    {"0.25 GiB/s", 256 * kMiB, false},
    {"0.25 GiB/s, shadow memory", 256 * kMiB, true},
    {"1 GiB/s", 1024 * kMiB, false},
    {"1 GiB/s, shadow memory", 1024 * kMiB, true},
    {"4 GiB/s", 4096 * kMiB, false},
    {"4 GiB/s, shadow memory", 4096 * kMiB, true},
    {"no limit", 0, false},
    {"no limit, shadow memory", 0, true},
};

struct LinkRuns {
  Runs copying, copying_ratio, pause, pause_ratio, cpu;
};

// The device's memory before and after a step.
struct StepBytes {
  std::vector<std::byte> before, now;
};

double ratio_of(const engine::RoundReport& report) {
  return static_cast<double>(report.sent_bytes) /
         static_cast<double>(std::max<std::uint64_t>(report.wire_bytes, 1));
}

Result<double> run_link(EnginePair& pair, const LinkCase& link, const StepBytes& state, LinkRuns& results) {
  CKPT_TRYV(pair.memory().fill_with(state.before));
  CKPT_TRY(session, pair.begin({.same_host = false,
                                .bandwidth = link.bytes_per_second,
                                .codec = codec::CodecMode::kAuto,
                                .shadow_memory_bytes = link.shadow ? pair.memory().bytes() : 0}));
  CKPT_TRY(first, session->round());
  CKPT_TRYV(session->verify_ahead());
  CKPT_TRYV(pair.memory().fill_with(state.now));
  const Nanos paused = now_ns();
  CKPT_TRY(last, session->verify());
  const Nanos pause = now_ns() - paused;
  CKPT_TRYV(session->end());
  results.copying.push_back(static_cast<double>(first.wall) * 1e-6);
  results.copying_ratio.push_back(ratio_of(first.report));
  results.pause.push_back(static_cast<double>(pause) * 1e-6);
  results.pause_ratio.push_back(ratio_of(last));
  results.cpu.push_back(static_cast<double>(first.cpu) / static_cast<double>(pair.memory().bytes()));
  return results.copying.back();
}

Result<void> measure(const BenchOptions& options, Section& section) {
  const std::uint64_t bytes = std::min(options.bytes, kMaxFloatBytes);
  const TrainingData data = make_training_data(std::min(bytes / 16, kMaxParameters), {});
  const StepBytes state{bytes_of(data.before), bytes_of(data.now)};
  CKPT_TRY(pair, EnginePair::create(options.program, bytes));
  std::vector<LinkRuns> results(std::size(kLinkCases));
  std::vector<Side> sides;
  for (std::size_t i = 0; i < results.size(); ++i)
    sides.push_back([&, i] { return run_link(*pair, kLinkCases[i], state, results[i]); });
  CKPT_TRYV(interleave(options.pairs, sides));
  CKPT_TRYV(pair->finish());
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::vector<Cell> cells;
    for (Runs* runs : {&results[i].copying, &results[i].copying_ratio, &results[i].pause,
                       &results[i].pause_ratio, &results[i].cpu}) {
      runs->erase(runs->begin());  // removes the warm-up run
      cells.push_back(spread_of(*runs));
    }
    section.add_row(kLinkCases[i].name, std::move(cells));
  }
  return ok();
}

}  // namespace

Result<void> bench_links(const BenchOptions& options, Report& report) {
  Section& section = report.add_section(
      "links",
      "A training job's memory moved between two processes over TCP at several link rates, codec chosen "
      "automatically, interleaved; one step changes all memory before the pause");
  section.set_columns({{"copying", "ms"},
                       {"plain / wire bytes", ""},
                       {"pause: final round and comparison", "ms"},
                       {"plain / wire bytes, pause", ""},
                       {"processor time of copying", "s/GB"}});
  return measure(options, section);
}

}  // namespace ckpt::bench
