// SPDX-License-Identifier: Apache-2.0
// The findings of ckpt-image as JSON and as tables. Keys are stable because scripts read them. The content
// key of a job is never shown. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libckpt/store/vault/vault.h"

namespace ckpt::image_tool {

nlohmann::json to_json(const std::vector<vault::JobSummary>& jobs);
std::string to_table(const std::vector<vault::JobSummary>& jobs);

// All of a job's versions, whole and damaged.
struct VersionList {
  std::vector<std::shared_ptr<const vault::Version>> whole;
  std::vector<vault::DamagedVersion> damaged;
};
nlohmann::json to_json(const VersionList& versions);
std::string to_table(const VersionList& versions);

nlohmann::json to_json(const vault::Version& version);
std::string to_table(const vault::Version& version);

nlohmann::json to_json(const vault::ScrubReport& report);
std::string to_table(const vault::ScrubReport& report);

nlohmann::json to_json(const vault::VersionDiff& diff);
std::string to_table(const vault::VersionDiff& diff);

}  // namespace ckpt::image_tool
