// SPDX-License-Identifier: Apache-2.0
// A trace of driver calls as libckpt_shim.so writes it (libckpt/inprocess/shim/README.md). The file is another
// program's, so everything in it is checked.
// Threads: one. Errors: kInvalidArgument names the line; kNotFound and others as the file's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::replay {

struct TracedValue {
  char kind = 0;                      // n, h, v, s, d or b (libckpt/inprocess/shim/core/trace.h)
  std::uint64_t value = 0;            // the argument itself; of b: 0
  bool has_data = false;              // what it points to was readable
  std::vector<unsigned char> data;    // after the call; of s: the text without its end
  std::vector<unsigned char> before;  // before the call, if it was kept
};

struct TracedCall {
  std::size_t line = 0;
  std::uint32_t thread = 0;
  std::int64_t began_us = 0;
  std::int64_t took_us = 0;
  std::string name;
  int result = 0;
  std::vector<TracedValue> values;
};

struct Trace {
  int driver_version = 0;
  std::vector<TracedCall> calls;  // as they ended
  bool is_cut = false;            // the last line has no end: its program was killed
};

inline constexpr std::size_t kMaxCalls = 4'000'000;
inline constexpr std::size_t kMaxValues = 16;
inline constexpr std::size_t kMaxLine = 16 * 1024;

[[nodiscard]] Result<Trace> parse_trace(const std::string& text);
[[nodiscard]] Result<Trace> read_trace(const std::string& path);

}  // namespace ckpt::replay
