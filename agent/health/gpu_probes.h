// SPDX-License-Identifier: Apache-2.0
// Whether a GPU still computes: a process of its own (gpumigrate-context --probe-gpu) makes a context on it
// and does a little work, within a deadline. A probe that does not end by then hangs in the driver. It is
// ordered to end, which may have no effect, and left alone. As long as it lives, no other is started on that
// GPU. At most one at a time on each.
// Threads: the event loop. Ownership: the agent's; answers() is dropped at stop(). Errors: a probe that
// cannot be started, or has no valid output, counts as not tried.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/io/process.h"
#include "libckpt/health/decide.h"

namespace ckpt::agent {

struct GpuProbeAnswer {
  GpuProbeAnswer() = default;
  GpuProbeAnswer(health::GpuProbe its_result, std::string its_detail)
      : result(its_result), detail(std::move(its_detail)) {}
  health::GpuProbe result = health::GpuProbe::kNotTried;
  std::string detail;  // one line
};
// The process's output; any other output is kNotTried.
[[nodiscard]] GpuProbeAnswer parse_gpu_probe(std::string_view output);

struct GpuProbeSettings {
  std::string program;  // gpumigrate-context
  std::string folder;   // its output lies there
  Milliseconds deadline{20000};
};

class GpuProbes : public std::enable_shared_from_this<GpuProbes> {
 public:
  using Answers = std::function<void(const std::string& uuid, const GpuProbeAnswer&)>;
  static std::shared_ptr<GpuProbes> create(const asio::any_io_executor& executor, GpuProbeSettings settings,
                                           Answers answers);
  GpuProbes(const GpuProbes&) = delete;
  GpuProbes& operator=(const GpuProbes&) = delete;

  // The answer comes later, once; nothing while one is under way.
  void ask(const std::string& uuid);
  void stop();

 private:
  struct Probe;
  GpuProbes(const asio::any_io_executor& executor, GpuProbeSettings settings, Answers answers)
      : executor_(executor), settings_(std::move(settings)), answers_(std::move(answers)) {}
  Task<> run(std::shared_ptr<Probe> probe);
  Task<GpuProbeAnswer> outcome(std::shared_ptr<Probe> probe);
  Result<void> launch(const std::shared_ptr<Probe>& probe);

  asio::any_io_executor executor_;
  GpuProbeSettings settings_;
  Answers answers_;
  std::map<std::string, std::shared_ptr<Probe>> probes_;  // by UUID: the last of each
};

}  // namespace ckpt::agent
