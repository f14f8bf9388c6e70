// SPDX-License-Identifier: Apache-2.0
#include "agent/context_helper/messages.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace ckpt::agent::context {
namespace {

static_assert(std::has_unique_object_representations_v<Order>, "no padding: it would carry our memory");
static_assert(std::has_unique_object_representations_v<Answer>, "no padding: it would carry our memory");

template <class Value>
Result<Value> read_value(std::span<const std::byte> bytes) {
  Value value;
  if (bytes.size() != sizeof value)
    return Error(ErrorCode::kProtocol, "A packet of the context helper has " + std::to_string(bytes.size()) +
                                           " bytes instead of " + std::to_string(sizeof value));
  std::memcpy(&value, bytes.data(), sizeof value);
  if (value.magic != kMagic || value.version != kVersion)
    return Error(ErrorCode::kProtocol, "A packet of the context helper is of another version");
  return value;
}

}  // namespace

const char* name_of(Kind kind) noexcept {
  switch (kind) {
    case Kind::kReady:
      return "start";
    case Kind::kState:
      return "state";
    case Kind::kLock:
      return "lock";
    case Kind::kCheckpoint:
      return "checkpoint";
    case Kind::kRestore:
      return "restore";
    case Kind::kUnlock:
      return "unlock";
    case Kind::kRestoreThread:
      return "restore thread";
  }
  return "unknown";
}

const char* name_of(ProcessState state) noexcept {
  switch (state) {
    case ProcessState::kRunning:
      return "running";
    case ProcessState::kLocked:
      return "locked";
    case ProcessState::kCheckpointed:
      return "checkpointed";
    case ProcessState::kFailed:
      return "failed";
  }
  return "unknown";
}

Result<Order> parse_order(std::span<const std::byte> bytes) {
  CKPT_TRY(order, read_value<Order>(bytes));
  if (order.kind <= Kind::kReady || order.kind > Kind::kRestoreThread)
    return Error(ErrorCode::kProtocol, "An order of no known kind");
  if (order.pair_count > kMaxPairs || order.pid <= 0)
    return Error(ErrorCode::kProtocol, "An order with too many GPUs or no process");
  return order;
}

Result<Answer> parse_answer(std::span<const std::byte> bytes) {
  CKPT_TRY(answer, read_value<Answer>(bytes));
  const bool known_kind = answer.kind >= Kind::kReady && answer.kind <= Kind::kRestoreThread;
  const bool known_code = answer.code >= 0 && answer.code <= static_cast<int>(ErrorCode::kInternal);
  const bool known_state = answer.kind != Kind::kState || answer.code != 0 ||
                           (answer.value >= 0 && answer.value <= static_cast<int>(ProcessState::kFailed));
  if (!known_kind || !known_code || !known_state || answer.text_bytes > kMaxText)
    return Error(ErrorCode::kProtocol, "An answer of the context helper is out of range");
  return answer;
}

void set_error(Answer& answer, const Error& error) {
  answer.code = static_cast<std::int32_t>(error.code());
  answer.native = error.native();
  set_text(answer, error.to_string());
}

void set_text(Answer& answer, std::string_view text) {
  answer.text_bytes = static_cast<std::uint32_t>(std::min(text.size(), kMaxText));
  text.copy(answer.text.data(), answer.text_bytes);
}

std::string text_of(const Answer& answer) {
  return std::string(answer.text.data(), answer.text_bytes);
}

Error error_of(const Answer& answer) {
  return Error(static_cast<ErrorCode>(answer.code), text_of(answer));
}

}  // namespace ckpt::agent::context
