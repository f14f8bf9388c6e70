// SPDX-License-Identifier: Apache-2.0
// The decision whether a caller may make a request, made before the request is processed. It depends on the
// call (routes.h) and on each field of the body (fields.h).
// Threads: pure functions. Errors: kInvalidArgument for a body that is not an object.
#pragma once

#include <optional>
#include <string>

#include "coordinator/requests/http.h"
#include "coordinator/requests/roles.h"
#include "coordinator/requests/routes.h"
#include "libckpt/base/result.h"

namespace ckpt::coordinator {

// Returns the text of a refusal: "This needs the role admin, and yours is operator: ...".
[[nodiscard]] std::string text_of_refusal(const std::string& what, Role min_role, Role role);
// Returns why the request is refused, for display, or nullopt if it is permitted.
Result<std::optional<std::string>> refusal_of(const HttpRequest& request, const Route& call, Role role);

}  // namespace ckpt::coordinator
