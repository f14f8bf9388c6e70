// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/shared/lane_messages.h"

namespace ckpt::engine {
namespace {

// Marks an invalid count in body_bytes(), which returns the bytes after the header for a message of this type
// and count.
constexpr std::size_t kBadCount = ~std::size_t{0};

std::size_t body_bytes(LaneMessage type, std::size_t count) {
  switch (type) {
    case LaneMessage::kChunks:
      return count > 0 && count <= kMaxChunks ? count * sizeof(ChunkRecord) : kBadCount;
    case LaneMessage::kAck:
    case LaneMessage::kStale:
      return count > 0 && count <= kMaxChunks ? count * sizeof(AckRecord) : kBadCount;
    case LaneMessage::kPlan:
    case LaneMessage::kHostState:
    case LaneMessage::kManifest:
      return count == 1 ? sizeof(BlobRecord) : kBadCount;
    case LaneMessage::kPing:
    case LaneMessage::kPong:
    case LaneMessage::kScanDone:
      return count == 1 ? sizeof(ClockRecord) : kBadCount;
    case LaneMessage::kDrop:
      return count == 1 ? sizeof(DropRecord) : kBadCount;
    case LaneMessage::kHostMemory:
      return count == 1 ? sizeof(HostMemoryRecord) : kBadCount;
    case LaneMessage::kPlanAnswer:
    case LaneMessage::kVerdict:
      return count <= kMaxTextBytes ? sizeof(VerdictRecord) + count : kBadCount;
    case LaneMessage::kAbort:
      return count <= kMaxTextBytes ? count : kBadCount;
    case LaneMessage::kCalibrate:
    case LaneMessage::kCalibrateAck:
    case LaneMessage::kFinal:
    case LaneMessage::kVerify:
      return count == 0 ? 0 : kBadCount;
    case LaneMessage::kInvalid:
      break;
  }
  return kBadCount;
}

}  // namespace

Result<LaneHeader> parse_lane_header(std::span<const std::byte> bytes, const SessionIdentity& id) {
  LaneHeader header;
  if (bytes.size() < sizeof header) return Error(ErrorCode::kProtocol, "A lane message has no header");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kLaneMagic || header.type == LaneMessage::kInvalid || header.type > LaneMessage::kLast)
    return Error(ErrorCode::kProtocol, "A lane message has an unknown kind: the movers are different builds");
  if (header.migration != id.migration || header.incarnation != id.incarnation || header.rank != id.rank)
    return Error(ErrorCode::kProtocol, "The peer sent a lane message of another migration (" +
                                           std::to_string(header.migration) + ", incarnation " +
                                           std::to_string(header.incarnation) + ")");
  const std::size_t body = body_bytes(header.type, header.count);
  if (body == kBadCount || bytes.size() != sizeof header + body)
    return Error(ErrorCode::kProtocol, "A lane message has a length that does not match its kind");
  return header;
}

std::string text_of(std::span<const std::byte> bytes, const LaneHeader& header) {
  const std::size_t at =
      sizeof(LaneHeader) + (header.type == LaneMessage::kAbort ? 0 : sizeof(VerdictRecord));
  std::string text(reinterpret_cast<const char*>(bytes.data() + at), header.count);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

LaneBuffer abort_message(const SessionIdentity& id, const Error& error) {
  LaneBuffer message(LaneMessage::kAbort, id, 0);
  message.set_slot(static_cast<std::uint32_t>(error.code()), 0);
  message.append_text(error.to_string());
  return message;
}

Error abort_error(std::span<const std::byte> bytes, const LaneHeader& header, std::string_view who) {
  const bool known = header.slot >= static_cast<std::uint32_t>(ErrorCode::kInvalidArgument) &&
                     header.slot <= static_cast<std::uint32_t>(ErrorCode::kInternal);
  ErrorCode code = known ? static_cast<ErrorCode>(header.slot) : ErrorCode::kAborted;
  // The peer's device is lost, not this process's.
  if (code == ErrorCode::kDevice) code = ErrorCode::kUnavailable;
  // The peer's text is passed to the user unchanged.
  if (code == ErrorCode::kRefused) return {code, text_of(bytes, header)};
  return {code, std::string(who) + " gave up: " + text_of(bytes, header)};
}

}  // namespace ckpt::engine
