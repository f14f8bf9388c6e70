// SPDX-License-Identifier: Apache-2.0
// The messages of a lane between sender and receiver: a fixed header with up to kMaxChunks records, and a
// payload. They are plain structs, little-endian: both movers run on the same kind of machine. The version is
// checked on the connection that passes the token, and by the magic here. They are plain because they are
// built and checked for every chunk and must not allocate.
//
// Source S, target T:
//   S>T kPlan (blob), T>S kPlanAnswer;  S>T kCalibrate, T>S kCalibrateAck;  S>T kPing, T>S kPong
//   S>T kChunks +payload, T>S kAck: one per kChunks, with its slot, sequence and records, and the target's
//       fingerprints
//   S>T kDrop: the region has gone
//   S>T kVerify(round): scan all chunks; T>S kStale (a chunk differs from the acknowledged one), then T>S
//   kScanDone
//   S>T kFinal(round), after a kVerify: the job is paused
//   S>T kHostMemory: host state of at most that many bytes follows; kHostState (blob)
//   S>T kManifest (blob, root in the header), T>S kVerdict
//   both: kAbort +text (ErrorCode in `slot`)
// Blobs and control messages are sent on lane 0 in order; chunks are sent on every lane.
//
// Threads: pure functions. parse() checks all received bytes before use: kProtocol closes the session.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "libckpt/base/result.h"
#include "libckpt/datapath/engine/shared/region.h"
#include "libckpt/datapath/track/fingerprint.h"

namespace ckpt::engine {

inline constexpr std::uint32_t kLaneMagic = 0x314c'5047;  // the magic of a lane's messages: the bytes "GPL1"
inline constexpr std::size_t kMaxChunks = 32;  // the maximum number of chunks in one message: 2 MiB of
                                               // default-sized chunks
inline constexpr std::size_t kMaxTextBytes = 800;
// The limit on the host state of one rank, in bytes.
inline constexpr std::uint64_t kMaxHostState = std::uint64_t{64} << 30;

enum class LaneMessage : std::uint8_t {
  kInvalid = 0,
  kPlan,
  kPlanAnswer,
  kCalibrate,
  kCalibrateAck,
  kPing,
  kPong,
  kChunks,
  kAck,
  kDrop,
  kFinal,
  kStale,
  kScanDone,
  kHostState,
  kManifest,
  kVerdict,
  kAbort,
  kVerify,
  kHostMemory,
  kLast = kHostMemory,
};

// The move that a message belongs to. It is part of every message.
struct SessionIdentity {
  std::uint64_t migration = 0;
  std::uint64_t incarnation = 0;
  std::uint32_t rank = 0;
  friend bool operator==(const SessionIdentity&, const SessionIdentity&) = default;
};

struct LaneHeader {
  std::uint32_t magic = kLaneMagic;
  LaneMessage type = LaneMessage::kInvalid;
  std::uint8_t reserved = 0;
  std::uint16_t count = 0;  // the number of records, or of bytes of text
  std::uint64_t migration = 0;
  std::uint64_t incarnation = 0;
  std::uint32_t rank = 0;
  std::uint32_t round = 0;
  std::uint32_t slot = 0;
  std::uint32_t sequence = 0;
};
static_assert(sizeof(LaneHeader) == 40);

struct ChunkRecord {  // a record of kChunks
  std::uint64_t region = 0;
  std::uint64_t generation = 0;
  std::uint32_t chunk = 0;
  std::uint32_t bytes = 0;  // the encoded size, which is the record's share of the payload
  std::uint8_t encoding = 0;
  std::array<std::uint8_t, 7> reserved{};
};
static_assert(sizeof(ChunkRecord) == 32);

struct AckRecord {  // a record of kAck or kStale
  std::uint64_t region = 0;
  std::uint64_t generation = 0;
  std::uint32_t chunk = 0;
  std::uint32_t gone = 0;  // 1 if the target does not have this region (any more), so that the fingerprint is
                           // void
  track::Fingerprint fingerprint;
};
static_assert(sizeof(AckRecord) == 40);

// A record of kPlan, kHostState, kManifest: the payload is bytes [offset, offset + payload) of `total`. Host
// state that is still being made states its maximum length. At least one of its last pieces states its final
// length.
struct BlobRecord {
  std::uint64_t total = 0;
  std::uint64_t offset = 0;
  track::Fingerprint root;  // the root over all fingerprints, used by kManifest
};
static_assert(sizeof(BlobRecord) == 32);

struct ClockRecord {  // a record of kPing, kPong, kVerdict, kScanDone: the sender's clock
  std::int64_t time_ns = 0;
};

struct HostMemoryRecord {  // a record of kHostMemory
  std::uint64_t limit = 0;
  std::uint64_t expected = 0;  // the expected number of bytes, for which memory is reserved in advance
};

struct DropRecord {
  std::uint64_t region = 0;
  std::uint64_t generation = 0;
};

struct VerdictRecord {     // a record of kPlanAnswer or kVerdict, followed by `count` bytes of text
  std::uint32_t code = 0;  // an ErrorCode; 0 means that the target accepts
  std::uint32_t reserved = 0;
  std::int64_t time_ns = 0;
  track::Fingerprint root;
};
static_assert(sizeof(VerdictRecord) == 32);

inline constexpr std::size_t kMaxLaneHeaderBytes = sizeof(LaneHeader) + kMaxChunks * sizeof(AckRecord);
static_assert(kMaxLaneHeaderBytes >= sizeof(LaneHeader) + sizeof(VerdictRecord) + kMaxTextBytes);

// A message header under construction on the stack.
class LaneBuffer {
 public:
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): the part of bytes_ that is sent is written first
  LaneBuffer(LaneMessage type, const SessionIdentity& id, std::uint32_t round) {
    header_.type = type;
    header_.migration = id.migration;
    header_.incarnation = id.incarnation;
    header_.rank = id.rank;
    header_.round = round;
  }
  void set_slot(std::uint32_t slot, std::uint32_t sequence) {
    header_.slot = slot;
    header_.sequence = sequence;
  }
  template <class Record>
  void append(const Record& record) {
    std::memcpy(bytes_.data() + size_, &record, sizeof record);
    size_ += sizeof record;
    ++header_.count;
  }
  void append_text(std::string_view text) {
    text = text.substr(0, kMaxTextBytes);
    // Uses copy() and not memcpy, which must not receive the null pointer of an empty view.
    text.copy(reinterpret_cast<char*>(bytes_.data()) + size_, text.size());
    size_ += text.size();
    header_.count = static_cast<std::uint16_t>(text.size());
  }
  [[nodiscard]] std::span<const std::byte> bytes() {
    std::memcpy(bytes_.data(), &header_, sizeof header_);
    return {bytes_.data(), size_};
  }

 private:
  LaneHeader header_;
  std::size_t size_ = sizeof(LaneHeader);
  std::array<std::byte, kMaxLaneHeaderBytes> bytes_;
};

// Reads the header. Checks its magic, that its type is known, that it belongs to this session, and that its
// length fits the type and count.
Result<LaneHeader> parse_lane_header(std::span<const std::byte> bytes, const SessionIdentity& id);

// Returns record `index` of a message that parse_lane_header() accepted.
template <class Record>
[[nodiscard]] Record record_at(std::span<const std::byte> bytes, std::size_t index = 0) {
  Record record;
  std::memcpy(&record, bytes.data() + sizeof(LaneHeader) + index * sizeof record, sizeof record);
  return record;
}
// Makes a kAbort with the text for the peer. abort_error() returns the error that the peer derives from it;
// `who` names the side that aborted.
LaneBuffer abort_message(const SessionIdentity& id, const Error& error);
[[nodiscard]] Error abort_error(std::span<const std::byte> bytes, const LaneHeader& header,
                                std::string_view who);
// Returns the text of kAbort (after the header) or of a VerdictRecord.
[[nodiscard]] std::string text_of(std::span<const std::byte> bytes, const LaneHeader& header);

}  // namespace ckpt::engine
