// SPDX-License-Identifier: Apache-2.0
// The sections of gpumigrate-bench: one function each, listed in sections.def.
//
// A section measures on this machine, adds its Section to the report and returns. An error is written into
// the report by the caller and the other sections go on. Sections follow one another in one process; none
// leaves threads, processes or device memory behind. Nothing is timed cold: a section touches its memory and
// runs each side once before it measures.
#pragma once

#include <cstdint>
#include <string>

#include "libckpt/base/result.h"
#include "tools/bench/report.h"

namespace ckpt::bench {

struct BenchOptions {
  unsigned pairs = 7;  // interleaved runs A B A B ...: the figures are medians over them
  std::uint64_t bytes = std::uint64_t{1} << 30;  // state that is scanned, copied, moved
  std::string output = ".";                      // folder of plots and other files
  std::string program;                           // this executable, for the second process of a pair
  std::string program_folder;                    // where the other programs are (gpumigrate, examples/...)
};

#define BENCH_SECTION(name, summary) Result<void> bench_##name(const BenchOptions& options, Report& report);
#include "tools/bench/sections.def"
#undef BENCH_SECTION

}  // namespace ckpt::bench
