// SPDX-License-Identifier: Apache-2.0
// The stages of a round, each alone, measured in turns so that other work can be interleaved with them: what else uses the machine's
// memory then slows both.
//
//   CKPT_TRY(stages, Stages::create(options, cores));
//   loop: CKPT_TRY(bound, stages->turn());   // GB/s of this turn
//   stages->drop_first(); stages->fill(section);
//
// Threads: one. Errors: the driver's, UCX's, of the child process.
#pragma once

#include <memory>
#include <vector>

#include "tools/bench/bench.h"
#include "tools/bench/measure.h"
#include "tools/bench/streams.h"

namespace ckpt::bench {

class StageWork;

class Stages {
 public:
  static Result<std::unique_ptr<Stages>> create(const BenchOptions& options, unsigned cores);
  ~Stages();
  // Each stage once over all bytes. Returns cores / sum(1 / rate per core), which no pipeline of these stages can surpass.
  Result<double> turn();
  // The turn that only warmed up.
  void drop_first();
  // Ends the stages' child process; no turn after this.
  Result<void> finish();
  // Columns, a row for each stage and the bound's.
  void fill(Section& section) const;
  // Of the medians: seconds of a core for one GB through all stages, and through the scan.
  [[nodiscard]] double seconds() const;
  [[nodiscard]] double scan_seconds() const;

 private:
  struct Stage {
    const char* name;
    bool in_pipeline;  // counted in the sum; the other rows are for comparison
    std::function<Result<StreamRun>()> run;
    Runs rate{};      // GB/s
    Runs cpu_rate{};  // GB/s of one core
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
