// SPDX-License-Identifier: Apache-2.0
// PyTorch, by the scripts in share/torch of the bundle, a case each: moved unmodified and with the package (moves.py), and
// its driver calls written down (trace.py).
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

// Why a script of share/torch cannot run here; else PyTorch's version is in `version`.
std::string why_not(const Setting& setting, const std::string& script, std::string& version) {
  if (setting.software) return "NVIDIA's runtime library does not run on the software GPU (docs/adr/0044)";
  if (!std::filesystem::exists(script)) return "it is for the bundle (tools/bundle): there is no " + script;
  const auto torch = run_program(setting, {"python3", "-c", "import torch; print(torch.__version__)"});
  if (!torch || torch.assume_value().exit_code != 0) return "python3 has no PyTorch here";
  version = torch.assume_value().out.substr(0, torch.assume_value().out.find('\n'));
  return {};
}

// A script of share/torch with one case of it: its report holds what the case found, or why it failed.
Result<Outcome> run_script(const Setting& setting, const std::string& script, const std::string& name,
                           const std::vector<std::string>& options) {
  const std::string path = setting.programs + "/../share/torch/" + script;
  std::string version;
  if (std::string why = why_not(setting, path, version); !why.empty()) return not_possible(std::move(why));
  const std::string file = setting.work + "/torch.json";
  std::vector<std::string> call = {"python3", path, "--json", file};
  call.insert(call.end(), options.begin(), options.end());
  call.push_back(name);
  CKPT_TRY(output, run_program(setting, call));
  CKPT_TRY(report, read_json(file));
  Outcome outcome;
  outcome.figures = report.value(name, Json::object());
  outcome.figures["pytorch"] = version;
  if (output.exit_code == 0) return outcome;
  outcome.status = Status::kFailed;
  outcome.why = outcome.figures.value("failed", output.err);
  return outcome;
}

Result<Outcome> move_unmodified(const Setting& setting, const std::string& name) {
  if (::geteuid() != 0 && !setting.software)
    return not_possible("only jobs of root move between nodes with their process");
  return run_script(setting, "moves.py", name, {});
}

Result<Outcome> trace_case(const Setting& setting, const std::string& name) {
  if (setting.files.empty()) return not_possible("traces need a folder: --files DIR");
  return run_script(setting, "trace.py", name, {"--out", setting.files});
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
  return run_script(setting, "moves.py", "package", {});
}
Result<Outcome> check_pytorch_package_compile(const Setting& setting) {
  return run_script(setting, "moves.py", "package compile", {});
}
Result<Outcome> check_pytorch_trace_eager(const Setting& setting) {
  return trace_case(setting, "eager");
}
Result<Outcome> check_pytorch_trace_graph(const Setting& setting) {
  return trace_case(setting, "graph");
}
Result<Outcome> check_pytorch_trace_compile(const Setting& setting) {
  return trace_case(setting, "compile");
}

}  // namespace ckpt::gpu_check
