// SPDX-License-Identifier: Apache-2.0
// PyTorch, which knows nothing of gpumigrate, by share/torch/moves.py of the bundle: a case each.
#include <unistd.h>

#include <filesystem>

#include "tools/gpu_check/commands.h"

namespace ckpt::gpu_check {
namespace {

Outcome not_possible(std::string why) {
  Outcome outcome;
  outcome.status = Status::kImpossible;
  outcome.why = std::move(why);
  return outcome;
}

Result<Outcome> run_case(const Setting& setting, const std::string& name) {
  if (setting.software)
    return not_possible("NVIDIA's runtime library does not run on the software GPU (docs/adr/0044)");
  const std::string moves = setting.programs + "/../share/torch/moves.py";
  if (!std::filesystem::exists(moves))
    return not_possible("it is for the bundle (tools/bundle): there is no " + moves);
  if (::geteuid() != 0) return not_possible("only jobs of root move between nodes with their process");
  const auto torch = run_program(setting, {"python3", "-c", "import torch; print(torch.__version__)"});
  if (!torch || torch.assume_value().exit_code != 0) return not_possible("python3 has no PyTorch here");
  const std::string file = setting.work + "/torch.json";
  CKPT_TRY(output, run_program(setting, {"python3", moves, "--json", file, name}));
  CKPT_TRY(report, read_json(file));
  Outcome outcome;
  outcome.figures = report.value(name, Json::object());
  outcome.figures["pytorch"] = torch.assume_value().out.substr(0, torch.assume_value().out.find('\n'));
  if (output.exit_code == 0) return outcome;
  outcome.status = Status::kFailed;
  outcome.why = outcome.figures.value("failed", output.err);
  return outcome;
}

}  // namespace

Result<Outcome> check_pytorch_eager(const Setting& setting) {
  return run_case(setting, "eager");
}
Result<Outcome> check_pytorch_expandable(const Setting& setting) {
  return run_case(setting, "expandable");
}
Result<Outcome> check_pytorch_driver_pool(const Setting& setting) {
  return run_case(setting, "driver pool");
}
Result<Outcome> check_pytorch_compile(const Setting& setting) {
  return run_case(setting, "compile");
}
Result<Outcome> check_pytorch_graph(const Setting& setting) {
  return run_case(setting, "graph");
}
Result<Outcome> check_pytorch_workers(const Setting& setting) {
  return run_case(setting, "workers");
}

}  // namespace ckpt::gpu_check
