// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/session/copy_options.h"

#include <algorithm>
#include <charconv>

namespace ckpt::mover {
namespace {

constexpr double kFreshShare = 0.2;
constexpr Nanos kMinFreshPause = 20'000'000;

// Returns the number of free bytes from a line such as "MemAvailable:   16106392 kB".
std::uint64_t available_bytes(std::string_view meminfo) {
  constexpr std::string_view kField = "MemAvailable:";
  std::size_t at = meminfo.find(kField);
  if (at == std::string_view::npos) return 0;
  at = meminfo.find_first_not_of(' ', at + kField.size());
  if (at == std::string_view::npos) return 0;
  std::uint64_t kib = 0;
  std::from_chars(meminfo.data() + at, meminfo.data() + meminfo.size(), kib);
  return kib * 1024;
}

}  // namespace

codec::CodecMode codec_mode(wire::CodecMode mode) noexcept {
  switch (mode) {
    case wire::CodecMode::kRaw:
      return codec::CodecMode::kRaw;
    case wire::CodecMode::kPlanes:
      return codec::CodecMode::kPlanes;
    case wire::CodecMode::kDifference:
      return codec::CodecMode::kDifference;
    case wire::CodecMode::kInvalid:
    case wire::CodecMode::kAuto:
      break;
  }
  return codec::CodecMode::kAuto;
}

double duty_of(std::uint32_t slowdown_permille) noexcept {
  return slowdown_permille == 0 || slowdown_permille >= 1000 ? 1.0 : slowdown_permille / 1000.0;
}

Nanos fresh_pause(Nanos round, double duty) noexcept {
  // The round's own pauses count, because the GPU was busy for round * duty.
  const double rest = static_cast<double>(round) * (duty / kFreshShare - 1);
  return std::max(kMinFreshPause, static_cast<Nanos>(std::max(rest, 0.0)));
}

std::uint64_t shadow_memory(std::uint64_t asked, std::string_view meminfo) noexcept {
  return std::min(asked, available_bytes(meminfo) / 2);
}

}  // namespace ckpt::mover
