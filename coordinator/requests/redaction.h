// SPDX-License-Identifier: Apache-2.0
// The removal of parts of an answer that the reader's role may not see. Commands of jobs are hidden below
// operator, and their output below admin (libckpt/base/private_text.h). All answers of the API pass through
// this filter, so that no handler can omit it.
// Threads: pure functions. Errors: none; an answer that should be JSON and is not becomes an empty answer.
#pragma once

#include "coordinator/requests/http.h"
#include "coordinator/requests/json.h"
#include "coordinator/requests/roles.h"

namespace ckpt::coordinator {

// Returns a command, or a part of a command, in the form in which shown_to() finds it. The caller of the API
// receives it unchanged or as null.
[[nodiscard]] json command_json(const json& command);
[[nodiscard]] HttpResponse shown_to(Role role, HttpResponse answer);

}  // namespace ckpt::coordinator
