// SPDX-License-Identifier: Apache-2.0
// The items for PyTorch. Each item runs one case of the script moves.py in share/torch of the bundle: a
// program is moved unmodified, or with the package.
#include <unistd.h>

#include <filesystem>

#include "tools/gpu_check/items/examples.h"

namespace ckpt::gpu_check {
namespace {

// Returns the reason why moves.py cannot run here; empty if it can.
std::string why_not(const Setting& setting, const std::string& script) {
  if (setting.software) return "NVIDIA's runtime library does not run on the software GPU (docs/adr/0044)";
  return std::filesystem::exists(script)
             ? ""
             : "this check needs the bundle (tools/bundle): there is no " + script;
}

// Runs one case of moves.py. The script's report has the case's findings, or the reason of its failure.
Result<Outcome> run_moves(const Setting& setting, const std::string& name) {
  const std::string script = setting.programs + "/../share/torch/moves.py";
  if (std::string reason = why_not(setting, script); !reason.empty()) return not_possible(std::move(reason));
  const auto torch = run_program(setting, {"python3", "-c", "import torch; print(torch.__version__)"});
  if (!torch || torch->exit_code != 0) return not_possible("python3 has no PyTorch here");
  const std::string file = setting.work + "/torch.json";
  CKPT_TRY(output, run_program(setting, {"python3", script, "--json", file, name}));
  CKPT_TRY(report, read_json(file));
  Outcome outcome;
  outcome.figures = report.value(name, Json::object());
  outcome.figures["pytorch"] = torch->out.substr(0, torch->out.find('\n'));
  if (output.exit_code == 0) return outcome;
  outcome.status = Status::kFailed;
  outcome.reason = outcome.figures.value("failed", output.err);
  return outcome;
}

Result<Outcome> move_unmodified(const Setting& setting, const std::string& name) {
  if (::geteuid() != 0 && !setting.software)
    return not_possible("only jobs that run as root can be moved between nodes with their process");
  return run_moves(setting, name);
}

}  // namespace

Result<Outcome> check_pytorch_eager(const Setting& setting) {
  return move_unmodified(setting, "eager");
}
Result<Outcome> check_pytorch_expandable(const Setting& setting) {
  return move_unmodified(setting, "expandable");
}
Result<Outcome> check_pytorch_driver_pool(const Setting& setting) {
  return move_unmodified(setting, "driver pool");
}
Result<Outcome> check_pytorch_compile(const Setting& setting) {
  return move_unmodified(setting, "compile");
}
Result<Outcome> check_pytorch_graph(const Setting& setting) {
  return move_unmodified(setting, "graph");
}
Result<Outcome> check_pytorch_workers(const Setting& setting) {
  return move_unmodified(setting, "workers");
}
Result<Outcome> check_pytorch_package(const Setting& setting) {
  return run_moves(setting, "package");
}
Result<Outcome> check_pytorch_package_compile(const Setting& setting) {
  return run_moves(setting, "package compile");
}

}  // namespace ckpt::gpu_check
