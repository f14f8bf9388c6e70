// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/job_environment.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <sstream>

#include "libckpt/base/fd.h"

extern char** environ;

namespace ckpt::cli {
namespace {

constexpr std::size_t kMaxVariablesBytes = std::size_t{512} << 10;

// The variables that `run` sends by default for the lookup of programs, for the user's folders and for
// output.
constexpr std::array kSentNames = {
    "COLUMNS", "HOME", "LANG",   "LANGUAGE", "LINES", "LOGNAME",     "MPLCONFIGDIR",       "PATH",
    "SHELL",   "TERM", "TMPDIR", "TZ",       "USER",  "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT",
};
// The prefixes of variables with settings of interpreters, compute libraries and frameworks. `run` sends
// these variables by default.
constexpr std::array kSentPrefixes = {
    "ACCELERATE_", "CONDA_",   "CUBLAS_", "CUDA_",       "CUDNN_",  "CUPY_",         "DATASETS_",
    "GLOO_",       "GOMP_",    "HF_",     "JAX_",        "KMP_",    "LC_",           "MASTER_",
    "MKL_",        "NCCL_",    "NUMBA_",  "NUMEXPR_",    "NVIDIA_", "OMP_",          "OPENBLAS_",
    "PYTHON",      "PYTORCH_", "TF_",     "TOKENIZERS_", "TORCH",   "TRANSFORMERS_", "TRITON_",
    "UCX_",        "VLLM_",    "WANDB_",  "XDG_",        "XLA_",
};
// The parts of names that suggest a secret value. `run` does not send a variable with such a name by default.
constexpr std::array kSecretParts = {"TOKEN",      "SECRET", "PASSWORD", "PASSWD",
                                     "CREDENTIAL", "KEY",    "AUTH",     "COOKIE"};

template <std::size_t N>
bool begins_with_any(std::string_view name, const std::array<const char*, N>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const char* prefix) { return name.starts_with(prefix); });
}

// Returns true for variables that select libraries and GPUs. Their values depend on the job's node, not on
// the shell that submits the job.
bool belongs_to_node(std::string_view name) {
  constexpr std::array kOfNode = {"LD_LIBRARY_PATH", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES",
                                  "NVIDIA_VISIBLE_DEVICES"};
  constexpr std::array kPrefixesOfNode = {"CKPT_", "CUDASIM_", "GPUMIGRATE_"};
  return std::find(kOfNode.begin(), kOfNode.end(), name) != kOfNode.end() ||
         begins_with_any(name, kPrefixesOfNode);
}

Error no_variable(const std::string& from, const std::string& text) {
  return {ErrorCode::kInvalidArgument, from + ": \"" + text + "\" is neither NAME=VALUE nor NAME"};
}

Result<void> add_variable(const std::string& from, const std::string& text, Json& env) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (name.empty()) return no_variable(from, text);
  if (equals != std::string::npos) {
    env[name] = text.substr(equals + 1);
    return ok();
  }
  const char* value = std::getenv(name.c_str());
  if (value == nullptr)
    return Error(
        ErrorCode::kInvalidArgument,
        from + ": the variable " + name + " is not set in this shell; give a value with " + name + "=VALUE");
  env[name] = value;
  return ok();
}

Result<void> add_variables_of(const std::string& path, Json& env) {
  CKPT_TRY(text, read_file(path, kMaxVariablesBytes));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos || line[begin] == '#') continue;
    CKPT_TRYV(add_variable("--env-file " + path, line.substr(begin), env));
  }
  return ok();
}

}  // namespace

bool is_sent_by_itself(std::string_view name) {
  if (belongs_to_node(name)) return false;
  if (std::find(kSentNames.begin(), kSentNames.end(), name) != kSentNames.end()) return true;
  if (!begins_with_any(name, kSentPrefixes)) return false;
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return std::none_of(kSecretParts.begin(), kSecretParts.end(), [&](const char* part) {
    // TOKENIZERS_ is the prefix of a library's settings, which are no secrets.
    return upper.find(part) != std::string::npos &&
           !(std::string_view(part) == "TOKEN" && upper.starts_with("TOKENIZERS_"));
  });
}

Result<Json> job_environment(const EnvironmentOptions& options) {
  Json env = Json::object();
  for (char** entry = environ; *entry != nullptr; entry++) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    const std::string_view name = text.substr(0, equals);
    const bool sent = options.all ? !belongs_to_node(name) : is_sent_by_itself(name);
    if (sent) env[std::string(name)] = std::string(text.substr(equals + 1));
  }
  if (!options.file.empty()) {
    CKPT_TRYV(add_variables_of(options.file, env));
  }
  for (const std::string& text : options.variables) {
    CKPT_TRYV(add_variable("--env", text, env));
  }
  return env;
}

}  // namespace ckpt::cli
