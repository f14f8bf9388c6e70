// SPDX-License-Identifier: Apache-2.0
// The findings of ckpt-image as JSON and as tables. Keys are stable because scripts read them. The content
// key of a job is never shown.
// Threads: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libckpt/store/local/checkpoint_store.h"

namespace ckpt::image_tool {

nlohmann::json to_json(const std::vector<checkpoint_store::JobSummary>& jobs);
std::string to_table(const std::vector<checkpoint_store::JobSummary>& jobs);

// All of a job's versions, whole and damaged.
struct VersionList {
  std::vector<std::shared_ptr<const checkpoint_store::Version>> whole;
  std::vector<checkpoint_store::DamagedVersion> damaged;
};
nlohmann::json to_json(const VersionList& versions);
std::string to_table(const VersionList& versions);

nlohmann::json to_json(const checkpoint_store::Version& version);
std::string to_table(const checkpoint_store::Version& version);

nlohmann::json to_json(const checkpoint_store::ScrubReport& report);
std::string to_table(const checkpoint_store::ScrubReport& report);

nlohmann::json to_json(const checkpoint_store::VersionDiff& diff);
std::string to_table(const checkpoint_store::VersionDiff& diff);

}  // namespace ckpt::image_tool
