// SPDX-License-Identifier: Apache-2.0
// gpumigrate-health -> agent: one fixed-size value per packet of an inherited AF_UNIX SOCK_SEQPACKET
// socketpair (descriptor 3 in the helper). First a kGpu for each GPU, then, once events are registered, a
// kState for each, then kReady. From then on events as they come, states as they change, and a heartbeat
// whenever the driver has answered. Nothing goes the other way: a helper ends with its socket. Threads:
// values and pure functions. Errors: kProtocol.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "libckpt/base/result.h"

namespace ckpt::agent::nvml_watch {

inline constexpr int kSocketFd = 3;
inline constexpr std::uint32_t kMagic = 0x544c4847;  // "GHLT"
inline constexpr std::uint32_t kVersion = 2;
inline constexpr std::size_t kMaxText = 256;
inline constexpr std::uint32_t kMaxGpus = 64;
inline constexpr std::uint32_t kMaxXid = 99999;

enum class Kind : std::uint32_t { kGpu = 1, kState, kReady, kXid, kHeartbeat, kFailed };

// Of kState.
enum Flag : std::uint32_t {
  kLost = 1,
  kRecoveryKnown = 2,
  kRemapPending = 4,
  kRemapFailed = 8,
  kVolatileKnown = 16,
  kAggregateKnown = 32,
  kRowsKnown = 64,
};

// Errors of memory, and rows of it that were remapped, as far as the flags say that they are known.
struct Counters {
  std::uint64_t volatile_corrected = 0;  // since the driver was loaded
  std::uint64_t volatile_uncorrected = 0;
  std::uint64_t aggregate_corrected = 0;  // of the GPU's life
  std::uint64_t aggregate_uncorrected = 0;
  std::uint64_t rows_corrected = 0;
  std::uint64_t rows_uncorrected = 0;
  bool operator==(const Counters&) const = default;
};

struct Report {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  Kind kind = Kind::kHeartbeat;
  std::uint32_t gpu = 0;  // as NVML counts
  std::uint32_t xid = 0;
  std::uint32_t recovery = 0;  // field 230
  std::uint32_t flags = 0;
  std::uint32_t text_bytes = 0;
  Counters counters;                  // of kState
  std::array<char, kMaxText> text{};  // kGpu: "UUID BUS-ID NAME"; kFailed: why. Without an end mark
};

[[nodiscard]] Result<Report> parse_report(std::span<const std::byte> bytes);
// Cut to what fits.
void set_text(Report& report, std::string_view text);
[[nodiscard]] std::string text_of(const Report& report);

struct GpuName {
  GpuName() = default;
  std::string uuid;
  std::string bus_id;
  std::string model;
};
// Of a checked kGpu.
[[nodiscard]] GpuName gpu_name(const Report& report);

}  // namespace ckpt::agent::nvml_watch
