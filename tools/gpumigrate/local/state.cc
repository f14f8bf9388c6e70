// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/local/state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

namespace ckpt::cli {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const ProcessId& process) {
  return {{"pid", process.pid}, {"start", process.start}};
}

ProcessId process_of(const Json& json) {
  return {json.at("pid").get<pid_t>(), json.at("start").get<std::uint64_t>()};
}

LocalState state_of(const Json& json) {
  LocalState state;
  state.software = json.at("software").get<bool>();
  state.gpus = json.at("gpus").get<int>();
  state.gpu_memory = json.at("gpu_memory").get<std::string>();
  state.api_address = json.at("api_address").get<std::string>();
  state.agent_address = json.at("agent_address").get<std::string>();
  state.coordinator = process_of(json.at("coordinator"));
  for (const Json& node : json.at("nodes")) {
    state.nodes.push_back({node.at("name").get<std::string>(), process_of(node.at("process"))});
  }
  return state;
}

}  // namespace

Result<std::optional<LocalState>> load_local(const std::string& home) {
  const std::string path = home + "/local.json";
  if (::access(path.c_str(), F_OK) != 0) return std::optional<LocalState>();
  CKPT_TRY(text, read_file(path, 1 << 20));
  try {
    return std::optional<LocalState>(state_of(Json::parse(text)));
  } catch (const Json::exception& error) {
    return Error(ErrorCode::kCorrupt, path + " is damaged (" + error.what() +
                                          "); end the cluster's processes and remove the file");
  }
}

Result<void> save_local(const std::string& home, const LocalState& state) {
  Json json = {{"software", state.software},
               {"gpus", state.gpus},
               {"gpu_memory", state.gpu_memory},
               {"api_address", state.api_address},
               {"agent_address", state.agent_address},
               {"coordinator", to_json(state.coordinator)},
               {"nodes", Json::array()}};
  for (const LocalNode& node : state.nodes)
    json["nodes"].push_back({{"name", node.name}, {"process", to_json(node.process)}});
  return write_file_durably(home + "/local.json", json.dump(2) + "\n");
}

Result<std::optional<LocalLock>> LocalLock::try_acquire(const std::string& home) {
  const std::string path = home + "/local.lock";
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0)
    return std::optional<LocalLock>(LocalLock(std::move(file)));
  if (file && errno == EWOULDBLOCK) return std::optional<LocalLock>();
  return Error::from_errno("Locking " + path);
}

std::string cluster_marker(const std::string& home) {
  return "GPUMIGRATE_LOCAL_CLUSTER=" + home;
}

}  // namespace ckpt::cli
