// SPDX-License-Identifier: Apache-2.0
// Messages between the agent and gpumigrate-context. Each message is one packet of an inherited AF_UNIX
// SOCK_SEQPACKET socketpair (descriptor 3 in the helper). The encoding is described in
// libckpt/protocol/wire/codec.h. The helper sends one Answer of kind kReady at its start. Then it answers
// each Order with one Answer, in order. Both ends come from one build and run on one machine, but every
// received message is checked.
// Threads: plain values and pure functions. Errors: kProtocol, kNotSupported for another version.
#pragma once

#include <array>
#include <cereal/types/array.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/error.h"
#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/codec.h"

namespace ckpt::agent::context {

inline constexpr int kSocketFd = 3;
inline constexpr std::size_t kMaxPairs = 64;
inline constexpr std::size_t kMaxText = 400;
// The limits for the sizes of encoded messages.
inline constexpr std::size_t kMaxOrderBytes = 4096;
inline constexpr std::size_t kMaxAnswerBytes = 1024;

enum class Kind : std::uint32_t { kReady = 1, kState, kLock, kCheckpoint, kRestore, kUnlock, kRestoreThread };
[[nodiscard]] constexpr bool is_known(Kind kind) {
  return kind >= Kind::kReady && kind <= Kind::kRestoreThread;
}
[[nodiscard]] const char* name_of(Kind kind) noexcept;

// The states of a process that cuCheckpointProcessGetState returns.
enum class ProcessState : std::uint32_t { kRunning = 0, kLocked, kCheckpointed, kFailed };
[[nodiscard]] const char* name_of(ProcessState state) noexcept;

using Uuid = std::array<std::uint8_t, 16>;

// A GPU that the process used at the checkpoint, and the GPU that replaces it at the restore. Every GPU of
// the process must be listed, including GPUs that stay the same.
struct GpuPair {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  Uuid from{};
  Uuid to{};
  template <class A>
  decltype(auto) fields(A& a) {
    return a(from, to);
  }
};

struct Order {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  Kind kind = Kind::kState;
  std::int32_t pid = 0;
  std::uint64_t id = 0;
  std::uint32_t timeout_ms = 0;  // timeout of kLock; 0 means none
  std::vector<GpuPair> pairs;    // pairs for kRestore: at most kMaxPairs
  template <class A>
  decltype(auto) fields(A& a) {
    return a(kind, pid, id, timeout_ms, pairs);
  }
};

struct Answer {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  Kind kind = Kind::kReady;
  std::int32_t code = 0;  // value of ErrorCode; 0 means success
  std::uint64_t id = 0;   // id of the order; 0 for kReady
  std::int64_t native = 0;
  std::int64_t took_ns = 0;
  std::int32_t value = 0;  // result: for kState the ProcessState, for kRestoreThread the thread, for kReady
                           // the value of cuDriverGetVersion
  std::uint32_t device_count = 0;  // number of GPUs; set in the kReady answer only
  bool can_checkpoint = false;     // true if the driver supports checkpoints; set in the kReady answer only
  std::string text;                // text of the error, or the first GPU's name for kReady; at most kMaxText
  template <class A>
  decltype(auto) fields(A& a) {
    return a(kind, code, id, native, took_ns, value, device_count, can_checkpoint, text);
  }
};

// Decodes a packet. Each of the two functions fails if the packet is malformed, too long, or has a value out
// of range.
[[nodiscard]] Result<Order> parse_order(std::span<const std::byte> bytes);
[[nodiscard]] Result<Answer> parse_answer(std::span<const std::byte> bytes);

// Sets the answer's text, truncated to kMaxText.
void set_text(Answer& answer, std::string_view text);
// Puts the error into the answer, with its text truncated to kMaxText.
void set_error(Answer& answer, const Error& error);
// Returns the error of a checked answer with code != 0.
[[nodiscard]] Error error_of(const Answer& answer);

}  // namespace ckpt::agent::context
