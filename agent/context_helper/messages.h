// SPDX-License-Identifier: Apache-2.0
// Agent <-> gpumigrate-context: one fixed-size value per packet of an inherited AF_UNIX SOCK_SEQPACKET
// socketpair (descriptor 3 in the helper). The helper says Ready once, then answers each Order with one
// Answer, in order. Both ends are of one build and one machine; what arrives is checked all the same.
// Threads: values and pure functions. Errors: kProtocol.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/error.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::context {

inline constexpr int kSocketFd = 3;
inline constexpr std::uint32_t kMagic = 0x58544347;  // "GCTX"
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kMaxPairs = 64;
inline constexpr std::size_t kMaxText = 400;

enum class Kind : std::uint32_t { kReady = 1, kState, kLock, kCheckpoint, kRestore, kUnlock, kRestoreThread };
[[nodiscard]] const char* name_of(Kind kind) noexcept;

// As cuCheckpointProcessGetState answers.
enum class ProcessState : std::uint32_t { kRunning = 0, kLocked, kCheckpointed, kFailed };
[[nodiscard]] const char* name_of(ProcessState state) noexcept;

using Uuid = std::array<std::uint8_t, 16>;

// The GPU that was checkpointed, and the one to restore on. Every GPU of the process must be listed, also
// those that stay.
struct GpuPair {
  Uuid from{};
  Uuid to{};
};

struct Order {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  Kind kind = Kind::kState;
  std::int32_t pid = 0;
  std::uint64_t id = 0;
  std::uint32_t timeout_ms = 0;  // of a lock; 0: none
  std::uint32_t pair_count = 0;
  std::array<GpuPair, kMaxPairs> pairs{};
};

struct Answer {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  Kind kind = Kind::kReady;
  std::int32_t code = 0;  // of ErrorCode; 0: done
  std::uint64_t id = 0;   // of the order; 0: kReady
  std::int64_t native = 0;
  std::int64_t took_ns = 0;
  std::int32_t value = 0;  // kState: ProcessState; kRestoreThread: the thread; kReady: cuDriverGetVersion
  std::uint32_t device_count = 0;  // kReady
  std::uint32_t can_checkpoint = 0;
  std::uint32_t text_bytes = 0;
  std::array<char, kMaxText> text{};  // of the error, without an end mark; kReady: the first GPU's name
};

// The bytes of a packet as a value; kProtocol if they are none of this version, or a count or a kind is out
// of range.
[[nodiscard]] Result<Order> parse_order(std::span<const std::byte> bytes);
[[nodiscard]] Result<Answer> parse_answer(std::span<const std::byte> bytes);

template <class Value>
[[nodiscard]] std::vector<std::byte> to_bytes(const Value& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

// Cut to what fits.
void set_text(Answer& answer, std::string_view text);
[[nodiscard]] std::string text_of(const Answer& answer);
// Puts the error into the answer, its text cut to what fits.
void set_error(Answer& answer, const Error& error);
// What the helper said; of a checked answer with code != 0.
[[nodiscard]] Error error_of(const Answer& answer);

}  // namespace ckpt::agent::context
