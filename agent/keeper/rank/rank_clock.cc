// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/rank/rank_clock.h"

#include <sstream>
#include <string>

#include "libckpt/base/fd.h"

namespace ckpt::keeper {

Nanos lag_of_offsets(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string clock;
  Nanos seconds = 0;
  Nanos nanos = 0;
  while (lines >> clock >> seconds >> nanos) {
    if (clock == "boottime") return -(seconds * 1'000'000'000 + nanos);
  }
  return 0;
}

Result<Nanos> rank_clock_lag(pid_t pid) {
  auto text = read_file("/proc/" + std::to_string(pid) + "/timens_offsets", 4096);
  if (text) return lag_of_offsets(*text);
  if (text.error().code() == ErrorCode::kNotFound) return Nanos(0);
  return std::move(text).error();
}

}  // namespace ckpt::keeper
