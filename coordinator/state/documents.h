// SPDX-License-Identifier: Apache-2.0
// Jobs and migrations as the JSON documents that the store keeps. Not the API's JSON (api_json.h): these hold
// everything and are read back. Pure; reading throws nlohmann's exceptions for malformed text, which the
// store catches.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

// Part of other documents.
[[nodiscard]] nlohmann::json place_document(const Place& place);
[[nodiscard]] Place place_from_document(const nlohmann::json& document);

[[nodiscard]] std::string job_document(const Job& job);
[[nodiscard]] Job job_from_document(const std::string& text);
[[nodiscard]] std::string migration_document(const Migration& migration);
[[nodiscard]] Migration migration_from_document(const std::string& text);

}  // namespace ckpt::coordinator
