// SPDX-License-Identifier: Apache-2.0
// The sections of gpumigrate-bench: one function each, listed in sections.def.
//
// A section measures on this machine, adds its Section to the report and returns. The caller writes an error
// into the report, and the other sections continue. Sections run one after another in one process. None
// leaves threads, processes or device memory behind. Measurements are never cold: a section touches its
// memory and runs each side once before it measures.
#pragma once

#include <cstdint>
#include <string>

#include "libckpt/base/result.h"
#include "tools/bench/report.h"

namespace ckpt::bench {

struct BenchOptions {
  unsigned pairs = 7;  // number of interleaved pairs of runs A B A B ...; all figures are medians over them
  std::uint64_t bytes = std::uint64_t{1} << 30;  // size of the state that is scanned, copied and moved
  std::string output = ".";                      // the folder of plots and other files
  std::string program;         // the path of this executable, for the second process of a pair
  std::string program_folder;  // the folder of the other programs (gpumigrate, examples/...)
};

#define BENCH_SECTION(name, summary) Result<void> bench_##name(const BenchOptions& options, Report& report);
#include "tools/bench/sections.def"
#undef BENCH_SECTION

}  // namespace ckpt::bench
