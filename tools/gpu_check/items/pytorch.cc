// SPDX-License-Identifier: Apache-2.0
// PyTorch, by the scripts in share/torch of the bundle, a case each: moved unmodified and with the package (moves.py), and
// its driver calls written down (trace.py); those of the example runtime, too.
#include <unistd.h>

#include <filesystem>

#include "tools/gpu_check/items/examples.h"

namespace ckpt::gpu_check {
namespace {

constexpr const char* kNoFolder = "traces need a folder: --files DIR";

std::string path_of(const Setting& setting, const std::string& script) {
  return setting.programs + "/../share/torch/" + script;
}

// Why a script of share/torch cannot run here; empty: it can.
std::string why_not(const Setting& setting, const std::string& script) {
  if (setting.software) return "NVIDIA's runtime library does not run on the software GPU (docs/adr/0044)";
  const std::string path = path_of(setting, script);
  return std::filesystem::exists(path) ? "" : "it is for the bundle (tools/bundle): there is no " + path;
}

// A script of share/torch with one case of it: its report holds what the case found, or why it failed.
Result<Outcome> run_script(const Setting& setting, const std::string& script, const std::string& name,
                           const std::vector<std::string>& options) {
  if (std::string why = why_not(setting, script); !why.empty()) return not_possible(std::move(why));
  const std::string file = setting.work + "/torch.json";
  std::vector<std::string> call = {"python3", path_of(setting, script), "--json", file};
  call.insert(call.end(), options.begin(), options.end());
  call.push_back(name);
  CKPT_TRY(output, run_program(setting, call));
  CKPT_TRY(report, read_json(file));
  Outcome outcome;
  outcome.figures = report.value(name, Json::object());
  if (output.exit_code == 0) return outcome;
  outcome.status = Status::kFailed;
  outcome.why = outcome.figures.value("failed", output.err);
  return outcome;
}

// The same, of a case that needs PyTorch.
Result<Outcome> run_with_torch(const Setting& setting, const std::string& script, const std::string& name,
                               const std::vector<std::string>& options) {
  if (std::string why = why_not(setting, script); !why.empty()) return not_possible(std::move(why));
  const auto torch = run_program(setting, {"python3", "-c", "import torch; print(torch.__version__)"});
  if (!torch || torch->exit_code != 0) return not_possible("python3 has no PyTorch here");
  const std::string& version = torch->out;
  CKPT_TRY(outcome, run_script(setting, script, name, options));
  outcome.figures["pytorch"] = version.substr(0, version.find('\n'));
  return std::move(outcome);
}

Result<Outcome> move_unmodified(const Setting& setting, const std::string& name) {
  if (::geteuid() != 0 && !setting.software)
    return not_possible("only jobs of root move between nodes with their process");
  return run_with_torch(setting, "moves.py", name, {});
}

Result<Outcome> trace_torch(const Setting& setting, const std::string& name) {
  if (setting.files.empty()) return not_possible(kNoFolder);
  return run_with_torch(setting, "trace.py", name, {"--out", setting.files});
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
  return run_with_torch(setting, "moves.py", "package", {});
}
Result<Outcome> check_pytorch_package_compile(const Setting& setting) {
  return run_with_torch(setting, "moves.py", "package compile", {});
}
Result<Outcome> check_pytorch_trace_eager(const Setting& setting) {
  return trace_torch(setting, "eager");
}
Result<Outcome> check_pytorch_trace_graph(const Setting& setting) {
  return trace_torch(setting, "graph");
}
Result<Outcome> check_pytorch_trace_compile(const Setting& setting) {
  return trace_torch(setting, "compile");
}
Result<Outcome> check_trace_runtime(const Setting& setting) {
  if (setting.files.empty()) return not_possible(kNoFolder);
  if (!std::filesystem::exists(setting.programs + "/examples/runtime"))
    return not_possible(kNoRuntimeExample);
  return run_script(setting, "trace.py", "runtime", {"--out", setting.files});
}

}  // namespace ckpt::gpu_check
