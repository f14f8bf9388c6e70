// SPDX-License-Identifier: Apache-2.0
// The usual pause of a job, by term: the median of its last pauses. So a pause while the node was busy with
// other work does not affect the next estimate. Pure. Errors: none.
#pragma once

#include <optional>
#include <vector>

#include "libckpt/protocol/wire/pause_terms.h"

namespace ckpt::coordinator {

inline constexpr std::size_t kMaxPauses = 3;

// Adds a pause at the end of `pauses`. Removes the oldest one if there were already kMaxPauses.
void add_pause(std::vector<wire::PauseFacts>& pauses, const wire::PauseFacts& latest);
// Returns the median, term by term, of the pauses of the same kind as the last pause. Returns nullopt without
// a pause.
[[nodiscard]] std::optional<wire::PauseFacts> usual_pause(const std::vector<wire::PauseFacts>& pauses);

}  // namespace ckpt::coordinator
