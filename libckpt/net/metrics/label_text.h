// SPDX-License-Identifier: Apache-2.0
// A label's value as Prometheus accepts it: valid UTF-8 of at most 128 bytes. For example, a GPU's name comes
// from a driver through an agent. One malformed byte would make the whole page invalid. The functions are
// pure.
#pragma once

#include <string>
#include <string_view>

namespace ckpt::metrics {

[[nodiscard]] std::string label_text(std::string_view text);

}  // namespace ckpt::metrics
