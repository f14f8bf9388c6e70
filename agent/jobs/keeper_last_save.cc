// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/keeper_last_save.h"

#include <nlohmann/json.hpp>

#include "agent/jobs/keeper_files.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

std::string read_report(const std::string& folder, const char* what) {
  const auto text = read_file(folder + "/status.json", kMaxStatusBytes);
  if (!text) return {};
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  if (!json.is_object()) return {};
  const auto said = json.find(what);
  return said != json.end() && said->is_string() ? said->get<std::string>() : std::string();
}

}  // namespace

std::string read_keeper_last_save(const std::string& folder) {
  return read_report(folder, "last_save");
}

std::string read_keeper_loss(const std::string& folder) {
  return read_report(folder, "loss");
}

}  // namespace ckpt::agent
