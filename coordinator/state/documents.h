// SPDX-License-Identifier: Apache-2.0
// Jobs and migrations as the JSON documents that the store keeps (libckpt/record/document.h). Not the API's
// JSON (libckpt/api): these hold everything and are read back. Pure; reading throws std::exception for
// malformed text, which the store catches.
#pragma once

#include <string>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

[[nodiscard]] std::string job_document(const Job& job);
// Also reads what only older stores have, and refuses a job that has no instance.
[[nodiscard]] Job job_from_document(const std::string& text);
[[nodiscard]] std::string migration_document(const Migration& migration);
[[nodiscard]] Migration migration_from_document(const std::string& text);

}  // namespace ckpt::coordinator
