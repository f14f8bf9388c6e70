// SPDX-License-Identifier: Apache-2.0
// Makes the calls of a trace again, on the driver that is there. The program's kernels are not: in their place an
// empty one runs. What the driver answers is compared with what the traced one answered.
// Threads: calls are made one after the other, in the order in which they ended, each on a thread that stands for the
// traced one. Errors: kNotSupported without a driver. A call that cannot be made again is counted, with the reason.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "libckpt/base/result.h"
#include "tools/replay/trace_file.h"

namespace ckpt::replay {

struct Difference {
  std::size_t line = 0;  // of the first such call
  int traced = 0;
  int answered = 0;
  std::uint64_t count = 0;
};

struct Replayed {
  std::uint64_t calls = 0;  // made again
  std::map<std::string, std::uint64_t> by_function;
  std::map<std::string, std::vector<Difference>> differences;
  std::map<std::pair<std::string, std::string>, std::uint64_t> left_out;  // by function and reason
};

inline constexpr int kHangs = 2;  // a call did not return: the process ends with this code

// `kernels`: a module file with the kernel "replayed_kernel", for this driver.
[[nodiscard]] Result<Replayed> replay(const Trace& trace, const std::string& kernels);

}  // namespace ckpt::replay
