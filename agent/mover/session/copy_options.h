// SPDX-License-Identifier: Apache-2.0
// The engine's settings for a migration's options: codec, duty cycle, shadow memory. Threads: any; no state,
// no errors.
#pragma once

#include <cstdint>
#include <string_view>

#include "libckpt/base/clock.h"
#include "libckpt/datapath/codec/chooser.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::mover {

[[nodiscard]] codec::CodecMode codec_mode(wire::CodecMode mode) noexcept;

// Returns --slowdown as the share of the GPU's time that copying may take; 1 is no limit.
[[nodiscard]] double duty_of(std::uint32_t slowdown_permille) noexcept;

// Returns how long to wait after a round that took `round` at this duty. Further rounds keep the target fresh
// between the decision to switch and the pause. They take at most a fifth of the GPU's time and never more
// than the duty.
[[nodiscard]] Nanos fresh_pause(Nanos round, double duty) noexcept;

// Returns --shadow-memory, but at most half of the memory that the node has left, by the text of
// /proc/meminfo: a migration must not push the node's jobs out of their memory. Nothing if the text has no
// such line.
[[nodiscard]] std::uint64_t shadow_memory(std::uint64_t asked, std::string_view meminfo) noexcept;

}  // namespace ckpt::mover
