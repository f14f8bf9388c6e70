// SPDX-License-Identifier: Apache-2.0
// Reports of gpumigrate-health to its agent. Each report is one packet of an inherited AF_UNIX SOCK_SEQPACKET
// socketpair (descriptor 3 in the helper). The encoding is described in libckpt/protocol/wire/codec.h. First,
// the helper sends a kGpu for each GPU. After the registration of events it sends a kState for each GPU, then
// kReady. From then on it sends each event and each changed state. It sends a heartbeat whenever the driver
// has answered. The agent sends nothing, and the helper exits when its socket is closed.
// Threads: plain values and pure functions. Errors: kProtocol, kNotSupported for another version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/codec.h"

namespace ckpt::agent::nvml_watch {

inline constexpr int kSocketFd = 3;
inline constexpr std::size_t kMaxReportBytes = 1024;  // limit for an encoded report
inline constexpr std::size_t kMaxText = 256;
inline constexpr std::uint32_t kMaxGpus = 64;
inline constexpr std::uint32_t kMaxXid = 99999;

enum class Kind : std::uint32_t { kGpu = 1, kState, kReady, kXid, kHeartbeat, kFailed };
[[nodiscard]] constexpr bool is_known(Kind kind) {
  return kind >= Kind::kGpu && kind <= Kind::kFailed;
}

// The flags of a kState report.
enum Flag : std::uint32_t {
  kLost = 1,
  kRecoveryKnown = 2,
  kRemapPending = 4,
  kRemapFailed = 8,
  kVolatileKnown = 16,
  kAggregateKnown = 32,
  kRowsKnown = 64,
};

// Memory errors and remapped rows. The flags report which counters are known.
struct Counters {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint64_t volatile_corrected = 0;  // corrected errors since the driver was loaded
  std::uint64_t volatile_uncorrected = 0;
  std::uint64_t aggregate_corrected = 0;  // corrected errors since the GPU's first use
  std::uint64_t aggregate_uncorrected = 0;
  std::uint64_t rows_corrected = 0;
  std::uint64_t rows_uncorrected = 0;
  bool operator==(const Counters&) const = default;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(volatile_corrected, volatile_uncorrected, aggregate_corrected, aggregate_uncorrected,
             rows_corrected, rows_uncorrected);
  }
};

struct Report {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  Kind kind = Kind::kHeartbeat;
  std::uint32_t gpu = 0;  // NVML's number of the GPU
  std::uint32_t xid = 0;
  std::uint32_t recovery = 0;  // recovery action of the GPU (NVML field 230)
  std::uint32_t flags = 0;
  Counters counters;  // counters of a kState report
  std::string text;   // text by kind: "UUID BUS-ID NAME" for kGpu, the reason for kFailed; at most kMaxText
  template <class A>
  decltype(auto) fields(A& a) {
    return a(kind, gpu, xid, recovery, flags, counters, text);
  }
};

// Decodes a packet. The function fails if the packet is malformed, too long, or has a value out of range.
[[nodiscard]] Result<Report> parse_report(std::span<const std::byte> bytes);
// Sets the report's text, truncated to kMaxText.
void set_text(Report& report, std::string_view text);

struct GpuName {
  std::string uuid;
  std::string bus_id;
  std::string model;
};
// Returns the parts of a checked kGpu report's text.
[[nodiscard]] GpuName gpu_name(const Report& report);

}  // namespace ckpt::agent::nvml_watch
