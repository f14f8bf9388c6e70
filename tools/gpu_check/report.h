// SPDX-License-Identifier: Apache-2.0
// The report of a run of gpu-check, as lines, JSON and Markdown. Pure functions.
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
  std::string driver;  // one line: which driver the figures are from
  std::string no_gpu;  // why nothing was asked; empty if it was
  bool software = false;
  double seconds = 0;
  std::vector<Line> lines;
};

// One line for an item that is over.
std::string text_of(const Line& line);
Json to_json(const Report& report);
// A section for docs/benchmarks.md.
std::string to_markdown(const Report& report);
[[nodiscard]] bool any_failed(const Report& report);

}  // namespace ckpt::gpu_check
