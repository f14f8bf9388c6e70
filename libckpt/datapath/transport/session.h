// SPDX-License-Identifier: Apache-2.0
// The checks that all transports share: sizes and tokens, with their errors. Pure functions.
#pragma once

#include "libckpt/datapath/transport/transport.h"

namespace ckpt::transport {

// Checks the sizes of a message. Returns kInvalidArgument for a header or payload beyond the limits.
Result<void> check_sizes(std::size_t header_bytes, std::size_t payload_bytes);

// Compares tokens in time that does not depend on where they differ.
[[nodiscard]] bool tokens_equal(const SessionToken& a, const SessionToken& b) noexcept;

// Returns the error for a handler that returned no memory for a payload.
Error refused_payload(std::size_t payload_bytes);

// Returns the error for a connecting lane that closed before the peer welcomed it.
Error never_opened();

}  // namespace ckpt::transport
