// SPDX-License-Identifier: Apache-2.0
// Plain reads of host memory by one core: what a fingerprint is held against. Several ways, since none is the
// fastest on every processor. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ckpt::bench {

struct HostRead {
  const char* name;
  // Reads every byte once and folds it into the value, so that no compiler can leave it out.
  std::uint64_t (*function)(const std::byte* data, std::size_t bytes) noexcept;
};
// The ways to read that this processor has the instructions for.
[[nodiscard]] std::span<const HostRead> host_reads() noexcept;

}  // namespace ckpt::bench
