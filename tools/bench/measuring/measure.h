// SPDX-License-Identifier: Apache-2.0
// Interleaved runs, and what they cost in processor time.
//
//   CKPT_TRY(runs, interleave(options.pairs, {{"plain", [&] { return plain(); }}, {"ours", [&] { return
//   ours(); }}})); section.add_row("ours", {spread_of(runs[1]), spread_of(ratios_of(runs[1], runs[0]))});
//
// Threads: one. Errors: the first that a run returns.
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

// One measured run; the value is what is reported (a rate, mostly).
using Side = std::function<Result<double>()>;

// Each side once unmeasured, so that nothing is timed cold, then A B C A B C ... `pairs` times. One list per
// side.
Result<std::vector<Runs>> interleave(unsigned pairs, const std::vector<Side>& sides);

// Bytes per nanosecond, which is GB/s.
[[nodiscard]] inline double rate_of(std::uint64_t bytes, Nanos nanos) {
  return nanos <= 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(nanos);
}

// Processor time of the calling thread: what others do on its core does not count.
[[nodiscard]] Nanos thread_cpu_ns() noexcept;

// Processor time that this process, other processes and the software devices spend. Software devices are
// processes of their own; a real GPU costs no processor time, so there only the host's part counts.
class CpuMeter {
 public:
  // `others`: child processes that take part.
  explicit CpuMeter(std::vector<pid_t> others = {});
  // Since the last restart().
  [[nodiscard]] Nanos elapsed() const;
  void restart() { start_ = now(); }

 private:
  [[nodiscard]] Nanos now() const;
  std::vector<clockid_t> clocks_;
  Nanos start_ = 0;
};

}  // namespace ckpt::bench
