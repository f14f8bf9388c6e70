// SPDX-License-Identifier: Apache-2.0
// The usual pause of a job, by term: the median of its last ones. So a pause during which the node
// was busy with other things does not count for the next. Pure. Errors: none.
#pragma once

#include <optional>
#include <vector>

#include "libckpt/protocol/wire/pause_terms.h"

namespace ckpt::coordinator {

inline constexpr std::size_t kMaxPauses = 3;

// `pauses`: the latest at the end; the oldest leaves.
void add_pause(std::vector<wire::PauseFacts>& pauses, const wire::PauseFacts& latest);
// The median, term by term, of the pauses that were made as the last one was; nullopt without a pause.
[[nodiscard]] std::optional<wire::PauseFacts> usual_pause(const std::vector<wire::PauseFacts>& pauses);

}  // namespace ckpt::coordinator
