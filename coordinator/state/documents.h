// SPDX-License-Identifier: Apache-2.0
// Jobs and migrations as the JSON documents that the store records (libckpt/record/document.h). They differ
// from the API's JSON (libckpt/api): they contain all fields and are read back. Pure. Reading throws
// std::exception for malformed text, which the store catches.
#pragma once

#include <string>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

[[nodiscard]] std::string job_document(const Job& job);
// Reads a job, including fields that only older stores have. Refuses a job that has no instance.
[[nodiscard]] Job job_from_document(const std::string& text);
[[nodiscard]] std::string migration_document(const Migration& migration);
[[nodiscard]] Migration migration_from_document(const std::string& text);

}  // namespace ckpt::coordinator
