// SPDX-License-Identifier: Apache-2.0
// The stages of a round, each alone. They are measured in turns so that other work can be interleaved with
// them: other users of the machine's memory then slow both.
//
//   CKPT_TRY(stages, Stages::create(options, cores));
//   loop: CKPT_TRYV(stages->turn());
//   stages->drop_first(); stages->fill(section); stages->bounds(Path::kSameHost)
//
// Threads: one. Errors: the driver's, UCX's, of the child process.
#pragma once

#include <memory>
#include <vector>

#include "tools/bench/bench.h"
#include "tools/bench/datapath/streams.h"
#include "tools/bench/measuring/measure.h"

namespace ckpt::bench {

class StageWork;

// How payloads go from one process to the other: kSameHost as between GPUs of one node, kTcp as between
// nodes.
enum class Path : std::uint8_t { kSameHost, kTcp };

class Stages {
 public:
  static Result<std::unique_ptr<Stages>> create(const BenchOptions& options, unsigned cores);
  ~Stages();
  // Each stage once over all bytes.
  Result<void> turn();
  // The turn that only warmed up.
  void drop_first();
  // Ends the stages' child process; no turn after this.
  Result<void> finish();
  // Columns, a row for each stage and the bound's.
  void fill(Section& section) const;
  // GB/s, one for each turn: cores / sum(1 / rate per core), which no pipeline of these stages can surpass.
  [[nodiscard]] Runs bounds(Path path) const;
  // Seconds of one core for one GB through all stages, and through the scan, by the median rates.
  [[nodiscard]] double seconds(Path path) const;
  [[nodiscard]] double scan_seconds() const;

 private:
  struct Stage {
    const char* name;
    std::vector<Path> of;  // whose sum it counts in; none: for comparison
    std::function<Result<StreamRun>()> run;
    Runs rate{};      // GB/s
    Runs cpu_rate{};  // GB/s of one core
    [[nodiscard]] bool counts(Path path) const;
  };
  Stages(std::unique_ptr<StageWork> work, std::uint64_t bytes, unsigned cores);

  std::unique_ptr<StageWork> work_;
  std::uint64_t bytes_;
  unsigned cores_;
  std::vector<Stage> stages_;
};

// The section of the stages, empty; sections that are added later are printed below it.
Section& add_stages_section(Report& report);

}  // namespace ckpt::bench
