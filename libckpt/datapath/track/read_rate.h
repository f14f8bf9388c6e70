// SPDX-License-Identifier: Apache-2.0
// The rate at which the device reads its own memory: the H of the bound (docs/design.md §5). It is measured
// by a plain read, for comparison with the fingerprints that it limits.
//
//   CKPT_TRY(rate, measure_read_rate(*kernels, ranges, std::uint64_t{1} << 30));   // bytes per second
//
// Each byte is read once, in launches of at most kReadLaunchBytes. A short first launch is timed separately
// and subtracted, so that the cost of a launch itself does not count. Budgets of a few ms are enough: 1 GiB
// is 0.25 ms at 4.3 TB/s. A measurement during a running job takes that much of the device's time.
// Threads: any, one measurement at a time per call (each has its own stream). It allocates memory, so it is
// not for hot paths. Errors: the driver's; kInvalidArgument if a range is not 16-byte aligned or there is
// nothing to read.
#pragma once

#include <cstdint>
#include <span>

#include "libckpt/datapath/track/scanner.h"

namespace ckpt::track {

inline constexpr std::uint64_t kReadLaunchBytes = std::uint64_t{2} << 30;

Result<std::uint64_t> measure_read_rate(const TrackKernels& kernels, std::span<const ChunkRange> ranges,
                                        std::uint64_t budget_bytes);

}  // namespace ckpt::track
