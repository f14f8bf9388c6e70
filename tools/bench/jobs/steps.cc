// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/jobs/steps.h"

#include <algorithm>
#include <charconv>

namespace ckpt::bench {

std::optional<StepLine> parse_step(std::string_view line) {
  bool known = false;
  for (const std::string_view word : {"step ", "request "}) {
    if (!line.starts_with(word)) continue;
    line.remove_prefix(word.size());
    known = true;
    break;
  }
  if (!known) return std::nullopt;
  StepLine step;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step.step);
  if (error != std::errc{} || (end != line.data() + line.size() && *end != ' ')) return std::nullopt;
  constexpr std::string_view kAt = " at ";
  const std::size_t at = line.rfind(kAt);
  if (at != std::string_view::npos) {
    const std::string_view time = line.substr(at + kAt.size());
    if (std::from_chars(time.data(), time.data() + time.size(), step.time).ec != std::errc{}) step.time = 0;
  }
  return step;
}

std::vector<StepLine> parse_steps(std::string_view log) {
  std::vector<StepLine> steps;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size());
    if (const auto step = parse_step(log.substr(0, end))) steps.push_back(*step);
    log.remove_prefix(std::min(end + 1, log.size()));
  }
  return steps;
}

double step_rate(const std::vector<StepLine>& steps, double from, double to) {
  const StepLine* first = nullptr;
  const StepLine* last = nullptr;
  for (const StepLine& step : steps) {
    if (step.time < from || step.time > to) continue;
    if (first == nullptr) first = &step;
    last = &step;
  }
  if (first == nullptr || last->step <= first->step || last->time <= first->time) return 0;
  return static_cast<double>(last->step - first->step) / (last->time - first->time);
}

}  // namespace ckpt::bench
