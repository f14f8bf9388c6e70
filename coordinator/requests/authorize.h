// SPDX-License-Identifier: Apache-2.0
// Decides whether a caller may make a request, ahead of all that acts on it. The call counts (routes.h), and each field
// of the body (fields.h).
// Threads: pure functions. Errors: kInvalidArgument for a body that is no object.
#pragma once

#include <optional>
#include <string>

#include "coordinator/requests/http.h"
#include "coordinator/requests/roles.h"
#include "coordinator/requests/routes.h"
#include "libckpt/base/result.h"

namespace ckpt::coordinator {

// "This needs the role admin, and yours is operator: ...".
[[nodiscard]] std::string text_of_refusal(const std::string& what, Role min_role, Role role);
// Why it is refused, for people; nothing: it is not.
Result<std::optional<std::string>> refusal_of(const HttpRequest& request, const Route& call, Role role);

}  // namespace ckpt::coordinator
