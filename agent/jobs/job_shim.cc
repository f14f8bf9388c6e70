// SPDX-License-Identifier: Apache-2.0
// Finds processes of a transparent job that have not loaded our library. cuInit fails in such a process, and
// the user needs the reason.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "agent/host_process/processes/process_tree.h"
#include "agent/jobs/job.h"
#include "libckpt/base/preloaded.h"

namespace ckpt::agent {
namespace {

constexpr const char* kDriver = "/libcuda.so";
constexpr const char* kRemedy =
    "cuInit fails in the process with error 304, and the process cannot be moved. A script that sets "
    "LD_PRELOAD must keep the existing value: LD_PRELOAD=OTHER.so:$LD_PRELOAD";

// The libraries that a process has loaded: the driver's and ours.
struct Loaded {
  bool driver = false;
  bool shim = false;
};

Loaded loaded_by(pid_t pid, const std::string& shim) {
  Loaded loaded;
  std::ifstream maps(host::proc_path(pid, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    loaded.driver = loaded.driver || line.find(kDriver) != std::string::npos;
    loaded.shim = loaded.shim || line.find(shim) != std::string::npos;
  }
  return loaded;
}

std::string name_of(pid_t pid) {
  std::ifstream file(host::proc_path(pid, "/comm"));
  std::string name;
  std::getline(file, name);
  return name;
}

std::string find_without_shim(pid_t root, const std::string& shim) {
  const auto processes = host::processes_of(root);
  if (!processes) return {};
  for (const pid_t pid : *processes) {
    const Loaded loaded = loaded_by(pid, shim);
    if (loaded.driver && !loaded.shim)
      return fmt::format(
          "process {} ({}) has loaded the GPU driver's library without gpumigrate's library: {}", pid,
          name_of(pid), kRemedy);
  }
  return {};
}

std::string search_path_of(const std::vector<std::string>& environment) {
  for (const std::string& entry : environment) {
    if (entry.starts_with("PATH=")) return entry.substr(5);
  }
  return {};
}

}  // namespace

Task<> Job::detect_shim() {
  auto self = shared_from_this();
  if (record_.spec.mode != MigrationMode::kTransparent || ended() || rank_pid_ == 0) co_return;
  const std::string shim = "/" + std::filesystem::path(environment_.config.shim_library).filename().string();
  const auto look = [spec = record_.spec, root = static_cast<pid_t>(rank_pid_), shim] {
    const std::string found = find_without_shim(root, shim);
    if (!found.empty() || spec.argv.empty()) return found;
    const std::string reason = why_not_preloaded(spec.argv.front(), search_path_of(spec.env), spec.cwd,
                                                 static_cast<uid_t>(spec.uid));
    return reason.empty()
               ? reason
               : reason +
                     ", so gpumigrate's library is not loaded in the process: if the process uses the GPU, " +
                     kRemedy;
  };
  std::string found = co_await offload(environment_.records, look);
  if (found.empty() || found == without_shim_)
    co_return;  // an earlier reason stays valid, even after the process has exited
  without_shim_ = std::move(found);
  changed();
}

}  // namespace ckpt::agent
