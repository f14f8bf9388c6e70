// SPDX-License-Identifier: Apache-2.0
// The identity of a GPU as a program receives it: UUID and PCI address, as bytes.
// Threads: any. Errors: kInvalidArgument for text that is neither a UUID nor a PCI address.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "libckpt/base/result.h"
#include "libckpt/inprocess/local/messages.h"

namespace ckpt::agent {

using GpuUuid = std::array<std::uint8_t, 16>;

// Parses a UUID from its text "GPU-8-4-4-4-12 hexadecimal digits", as NVML writes it. to_text() is the
// inverse.
Result<GpuUuid> parse_gpu_uuid(std::string_view text);
[[nodiscard]] std::string to_text(const GpuUuid& uuid);

// Returns a GPU's identity. `bus_id` has the form "DOMAIN:BUS:DEVICE.FUNCTION", hexadecimal, as NVML writes
// it. The ordinal is 0, because a rank has one GPU.
Result<local::GpuIdentity> gpu_identity(std::string_view uuid, std::string_view bus_id);

}  // namespace ckpt::agent
