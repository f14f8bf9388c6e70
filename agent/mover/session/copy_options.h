// SPDX-License-Identifier: Apache-2.0
// Converts a migration's options into the engine's settings: codec, duty cycle, shadow memory.
// Threads: any. The functions have no state. Errors: none.
#pragma once

#include <cstdint>
#include <string_view>

#include "libckpt/base/clock.h"
#include "libckpt/datapath/codec/chooser.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::mover {

[[nodiscard]] codec::CodecMode codec_mode(wire::CodecMode mode) noexcept;

// Returns --slowdown as the share of the GPU's time that copying may use. 1 means no limit.
[[nodiscard]] double duty_of(std::uint32_t slowdown_permille) noexcept;

// Returns how long to wait after a round that took `round` at this duty. Further rounds update the target
// between the decision to switch and the pause. They take at most a fifth of the GPU's time, and never more
// than the duty.
[[nodiscard]] Nanos fresh_pause(Nanos round, double duty) noexcept;

// Returns --shadow-memory, but at most half of the node's available memory according to the text of
// /proc/meminfo. A migration must not push the node's jobs out of their memory. Returns 0 if the text has no
// such line.
[[nodiscard]] std::uint64_t shadow_memory(std::uint64_t asked, std::string_view meminfo) noexcept;

}  // namespace ckpt::mover
