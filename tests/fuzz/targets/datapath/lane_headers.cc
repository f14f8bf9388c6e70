// SPDX-License-Identifier: Apache-2.0
// Headers of lane messages, as UCX delivers them from any peer of the port. The records and the text of a
// parsed header are inside its bytes.
#include "libckpt/datapath/engine/shared/lane_messages.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

constexpr engine::SessionIdentity kSession{7, 2, 0};

template <class Record>
void read_records(std::span<const std::byte> bytes, std::size_t count) {
  // The loop reads every byte of every record, so that AddressSanitizer checks the accesses.
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto record = engine::record_at<Record>(bytes, i);
    std::array<std::uint8_t, sizeof record> raw;
    std::memcpy(raw.data(), &record, sizeof record);
    for (const std::uint8_t byte : raw) sum += byte;
  }
  FUZZ_CHECK(sum <= count * sizeof(Record) * 255);
}

void read_message(std::span<const std::byte> bytes, const engine::LaneHeader& header) {
  using engine::LaneMessage;
  switch (header.type) {
    case LaneMessage::kChunks:
      FUZZ_CHECK(header.count <= engine::kMaxChunks);
      return read_records<engine::ChunkRecord>(bytes, header.count);
    case LaneMessage::kAck:
    case LaneMessage::kStale:
      FUZZ_CHECK(header.count <= engine::kMaxChunks);
      return read_records<engine::AckRecord>(bytes, header.count);
    case LaneMessage::kPlan:
    case LaneMessage::kHostState:
    case LaneMessage::kManifest:
      return read_records<engine::BlobRecord>(bytes, 1);
    case LaneMessage::kPing:
    case LaneMessage::kPong:
    case LaneMessage::kScanDone:
      return read_records<engine::ClockRecord>(bytes, 1);
    case LaneMessage::kDrop:
      return read_records<engine::DropRecord>(bytes, 1);
    case LaneMessage::kHostMemory:
      return read_records<engine::HostMemoryRecord>(bytes, 1);
    case LaneMessage::kPlanAnswer:
    case LaneMessage::kVerdict:
      read_records<engine::VerdictRecord>(bytes, 1);
      FUZZ_CHECK(engine::text_of(bytes, header).size() <= engine::kMaxTextBytes);
      return;
    case LaneMessage::kAbort: {
      const ErrorCode code = engine::abort_error(bytes, header, "The peer").code();
      FUZZ_CHECK(code >= ErrorCode::kInvalidArgument && code <= ErrorCode::kInternal);
      return;
    }
    case LaneMessage::kCalibrate:
    case LaneMessage::kCalibrateAck:
    case LaneMessage::kFinal:
    case LaneMessage::kVerify:
      return;
    case LaneMessage::kInvalid:
      break;
  }
  FUZZ_CHECK(false && "a message of an unknown kind was accepted");
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = engine::parse_lane_header(bytes, fuzz::kSession);
  if (header) fuzz::read_message(bytes, *header);
  return 0;
}
