// SPDX-License-Identifier: Apache-2.0
#include "agent/context_helper/messages.h"

namespace ckpt::agent::context {

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
  if (bytes.size() > kMaxOrderBytes) return Error(ErrorCode::kProtocol, "The order is too long");
  CKPT_TRY(order, wire::decode<Order>(bytes));
  if (order.kind == Kind::kReady) return Error(ErrorCode::kProtocol, "The order has an unknown kind");
  if (order.pairs.size() > kMaxPairs || order.pid <= 0)
    return Error(ErrorCode::kProtocol, "The order lists too many GPUs, or has no valid process id");
  return order;
}

Result<Answer> parse_answer(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxAnswerBytes)
    return Error(ErrorCode::kProtocol, "An answer of the context helper is too long");
  CKPT_TRY(answer, wire::decode<Answer>(bytes));
  const bool known_code = answer.code >= 0 && answer.code <= static_cast<int>(ErrorCode::kInternal);
  const bool known_state = answer.kind != Kind::kState || answer.code != 0 ||
                           (answer.value >= 0 && answer.value <= static_cast<int>(ProcessState::kFailed));
  if (!known_code || !known_state || answer.text.size() > kMaxText)
    return Error(ErrorCode::kProtocol, "An answer of the context helper has a value out of range");
  return answer;
}

void set_error(Answer& answer, const Error& error) {
  answer.code = static_cast<std::int32_t>(error.code());
  answer.native = error.native();
  set_text(answer, error.to_string());
}

void set_text(Answer& answer, std::string_view text) {
  answer.text = text.substr(0, kMaxText);
}

Error error_of(const Answer& answer) {
  return Error(static_cast<ErrorCode>(answer.code), answer.text);
}

}  // namespace ckpt::agent::context
