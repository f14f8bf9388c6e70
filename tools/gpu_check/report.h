// SPDX-License-Identifier: Apache-2.0
// The report of a run of gpu-check, as lines, JSON and Markdown.
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "tools/gpu_check/supervisor.h"

namespace ckpt::gpu_check {

struct Line {
  const Item* item = nullptr;
  Ended ended;
};

struct Report {
  std::string driver;  // one line: the driver that produced the figures
  std::string no_gpu;  // why no item was run; empty: items were run
  bool software = false;
  double seconds = 0;
  std::vector<Line> lines;
};

// Returns one line for a finished item.
std::string text_of(const Line& line);
Json to_json(const Report& report);
// Returns the report in Markdown, as a section for docs/benchmarks.md.
std::string to_markdown(const Report& report);
[[nodiscard]] bool any_failed(const Report& report);

}  // namespace ckpt::gpu_check
