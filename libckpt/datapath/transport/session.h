// SPDX-License-Identifier: Apache-2.0
// The checks that all transports share: sizes and tokens, with their errors. Pure functions.
#pragma once

#include "libckpt/datapath/transport/transport.h"

namespace ckpt::transport {

// kInvalidArgument for a header or payload beyond the limits.
Result<void> check_sizes(std::size_t header_bytes, std::size_t payload_bytes);

// In time that does not depend on where they differ.
[[nodiscard]] bool tokens_equal(const SessionToken& a, const SessionToken& b) noexcept;

// The handler gave no memory for a payload.
Error refused_payload(std::size_t payload_bytes);

// A connecting lane ended before the peer welcomed it.
Error never_opened();

}  // namespace ckpt::transport
