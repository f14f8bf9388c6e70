// SPDX-License-Identifier: Apache-2.0
// Checks whether a GPU still computes. A separate process (gpumigrate-context --probe-gpu) creates a context
// on the GPU and does a little work, within a deadline. A probe that does not exit in time hangs in the
// driver. The probe is then killed, which may have no effect, and abandoned. As long as that process exists,
// no other probe is started on the GPU. Each GPU has at most one probe at a time.
// Threads: the event loop. Ownership: the agent owns it. answers() is dropped at stop(). Errors: a probe that
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
  std::string detail;  // one line that describes the result
};
// Parses the process's output. Output in any other form than the result line yields kNotTried.
[[nodiscard]] GpuProbeAnswer parse_gpu_probe(std::string_view output);

struct GpuProbeSettings {
  std::string program;  // path of gpumigrate-context
  std::string folder;   // folder for the program's output
  Milliseconds deadline{20000};
};

class GpuProbes : public std::enable_shared_from_this<GpuProbes> {
 public:
  using Answers = std::function<void(const std::string& uuid, const GpuProbeAnswer&)>;
  static std::shared_ptr<GpuProbes> create(const asio::any_io_executor& executor, GpuProbeSettings settings,
                                           Answers answers);
  GpuProbes(const GpuProbes&) = delete;
  GpuProbes& operator=(const GpuProbes&) = delete;

  // Starts a probe. Its answer arrives later, once, through answers(). The function does nothing while a
  // probe of the GPU is in progress.
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
  std::map<std::string, std::shared_ptr<Probe>> probes_;  // the last probe of each GPU, by UUID
};

}  // namespace ckpt::agent
