// SPDX-License-Identifier: Apache-2.0
// image_records.h as JSON, for the documents that the store keeps. Pure; reading throws nlohmann's exceptions
// for malformed text, which the store catches.
#pragma once

#include <nlohmann/json.hpp>

#include "coordinator/state/image_records.h"

namespace ckpt::coordinator {

[[nodiscard]] nlohmann::json image_document(const Image& image);
[[nodiscard]] Image image_from(const nlohmann::json& j);
[[nodiscard]] nlohmann::json protection_document(const Protection& protection);
[[nodiscard]] Protection protection_from(const nlohmann::json& j);
[[nodiscard]] nlohmann::json snapshot_document(const SnapshotFacts& facts);
[[nodiscard]] SnapshotFacts snapshot_from(const nlohmann::json& j);
[[nodiscard]] nlohmann::json operation_document(const ImageOperation& operation);
[[nodiscard]] ImageOperation operation_from(const nlohmann::json& j);

}  // namespace ckpt::coordinator
