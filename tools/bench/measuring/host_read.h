// SPDX-License-Identifier: Apache-2.0
// Plain reads of host memory by one core, with which a fingerprint is compared. There are several methods,
// because none is the fastest on every processor.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ckpt::bench {

struct HostRead {
  const char* name;
  // Reads every byte once and folds it into the result, so that no compiler can omit the read.
  std::uint64_t (*function)(const std::byte* data, std::size_t bytes) noexcept;
};
// Returns the read methods whose instructions this processor supports.
[[nodiscard]] std::span<const HostRead> host_reads() noexcept;

}  // namespace ckpt::bench
