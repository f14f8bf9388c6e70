// SPDX-License-Identifier: Apache-2.0
// Leaves out of an answer what its reader's role may not see: commands of jobs below operator, their output below
// admin (libckpt/base/private_text.h). All answers of the API go through it, so that none has to think of it.
// Threads: pure functions. Errors: none; an answer that should be JSON and is not becomes an empty one.
#pragma once

#include "coordinator/requests/http.h"
#include "coordinator/requests/json.h"
#include "coordinator/requests/roles.h"

namespace ckpt::coordinator {

// A command, or a part of one, in an answer: shown as it is, or as null.
[[nodiscard]] json command_json(const json& command);
[[nodiscard]] HttpResponse shown_to(Role role, HttpResponse answer);

}  // namespace ckpt::coordinator
