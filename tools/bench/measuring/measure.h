// SPDX-License-Identifier: Apache-2.0
// Interleaved runs, and their processor time.
//
//   CKPT_TRY(runs, interleave(options.pairs, {{"plain", [&] { return plain(); }}, {"ours", [&] { return
//   ours(); }}})); section.add_row("ours", {spread_of(runs[1]), spread_of(ratios_of(runs[1], runs[0]))});
//
// Threads: one. Errors: the first error that a run returns.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/base/result.h"

namespace ckpt::bench {

using Runs = std::vector<double>;

// A function that makes one measured run. It returns the reported figure (usually a rate).
using Side = std::function<Result<double>()>;

// Runs each side once unmeasured, so that no measurement is cold, and then A B C A B C ... `pairs` times.
// Returns one list per side.
Result<std::vector<Runs>> interleave(unsigned pairs, const std::vector<Side>& sides);

// Returns bytes per nanosecond, which equals GB/s.
[[nodiscard]] inline double rate_of(std::uint64_t bytes, Nanos nanos) {
  return nanos <= 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(nanos);
}

// Returns the processor time of the calling thread. Other work on its core does not count.
[[nodiscard]] Nanos thread_cpu_ns() noexcept;

// The processor time of this process, other processes and the software devices. Software devices are separate
// processes. A real GPU uses no processor time, so in that case only the host's part counts.
class CpuMeter {
 public:
  // Starts a measurement. `others` are child processes whose processor time is included.
  explicit CpuMeter(std::vector<pid_t> others = {});
  // Returns the processor time since the last restart().
  [[nodiscard]] Nanos elapsed() const;
  void restart() { start_ = now(); }

 private:
  [[nodiscard]] Nanos now() const;
  std::vector<clockid_t> clocks_;
  Nanos start_ = 0;
};

}  // namespace ckpt::bench
