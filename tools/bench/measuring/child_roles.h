// SPDX-License-Identifier: Apache-2.0
// The functions of the bench's second processes. Each function runs until the parent closes the link, which
// it returns as kUnavailable, or until another error.
#pragma once

#include "libckpt/base/result.h"

namespace ckpt::bench {

class Link;
#define BENCH_ROLE(name, function) Result<void> function(Link& link);
#include "tools/bench/measuring/child_roles.def"
#undef BENCH_ROLE

}  // namespace ckpt::bench
