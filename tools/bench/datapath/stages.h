// SPDX-License-Identifier: Apache-2.0
// The stages of a round, each alone. They are measured in turns so that other work can be interleaved with
// them. Other users of the machine's memory then slow down the stages and that work alike.
//
//   CKPT_TRY(stages, Stages::create(options, cores));
//   loop: CKPT_TRYV(stages->turn());
//   stages->drop_first(); stages->fill(section); stages->bounds(Path::kSameHost)
//
// Threads: one. Errors: the driver's, UCX's, and those of the child process.
#pragma once

#include <memory>
#include <vector>

#include "tools/bench/bench.h"
#include "tools/bench/datapath/streams.h"
#include "tools/bench/measuring/measure.h"

namespace ckpt::bench {

class StageWork;

// The path of payloads between the processes: kSameHost as between GPUs of one node, kTcp as between nodes.
enum class Path : std::uint8_t { kSameHost, kTcp };

class Stages {
 public:
  static Result<std::unique_ptr<Stages>> create(const BenchOptions& options, unsigned cores);
  ~Stages();
  // Runs each stage once over all bytes.
  Result<void> turn();
  // Removes the warm-up turn.
  void drop_first();
  // Ends the stages' child process. No turn may follow.
  Result<void> finish();
  // Fills `section` with its columns, and with a row for each stage and for the bound.
  void fill(Section& section) const;
  // Returns one bound in GB/s for each turn: cores / sum(1 / rate per core). No pipeline of these stages can
  // exceed it.
  [[nodiscard]] Runs bounds(Path path) const;
  // These functions return processor seconds per GB at the median rates: seconds() for all stages of `path`,
  // and scan_seconds() for the scan.
  [[nodiscard]] double seconds(Path path) const;
  [[nodiscard]] double scan_seconds() const;

 private:
  struct Stage {
    const char* name;
    std::vector<Path> of;  // the paths whose sum includes the stage; empty: only for comparison
    std::function<Result<StreamRun>()> run;
    Runs rate{};      // rates in GB/s
    Runs cpu_rate{};  // rates in GB/s of one core
    [[nodiscard]] bool counts(Path path) const;
  };
  Stages(std::unique_ptr<StageWork> work, std::uint64_t bytes, unsigned cores);

  std::unique_ptr<StageWork> work_;
  std::uint64_t bytes_;
  unsigned cores_;
  std::vector<Stage> stages_;
};

// Adds the section of the stages, still empty. Sections that are added later are printed below it.
Section& add_stages_section(Report& report);

}  // namespace ckpt::bench
