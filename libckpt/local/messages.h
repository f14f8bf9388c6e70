// SPDX-License-Identifier: Apache-2.0
// The local protocol: one message per SOCK_SEQPACKET datagram between rank and keeper, and between keeper and agent. A message
// is a fixed header, a fixed POD body (batches: a count and that many POD records) and at most 64 descriptors. Same machine,
// same build family: native byte order, checked by magic and version. Peers are hostile until parse() has accepted the bytes.
//
// The sequence (A agent, K keeper, R rank; "A>R" and "R>A" are relayed by the keeper with their descriptors; a rank's message is
// dropped while no agent is attached). `request` is chosen by the asker (not 0) and repeated in every answer; 0 marks an event.
//
//   start      R>K Hello           K>R Welcome +control page
//   attach     A>K Attach          K>A Status (also later, for each Attach; a second connection replaces the first)
//   ready      R>A Ready           a fresh instance has returned from ckpt_ready; or
//              R>A StandbyReady    a standby waits in ckpt_ready for Resume
//   describe   A>R Describe        R>A Tensors* Regions* DescribeEnd
//   export     A>R Export          R>A Tensors* (ExportBatch +fds, A>R ExportAck)* ExportEnd: the state at one instant, complete without
//              Describe. The rank closes a batch's descriptors once it is sent; it sends the next batch after the ack.
//              From then on, with the Export's request: Tensors (named since), TensorDropped, ExportBatch (allocated since; acked, too),
//              RegionFreed (unmap and close now; A>R RegionFreedAck when no process of ours holds it any more).
//              A>R StopExport      K>A Done. Also done by the keeper when the agent disconnects. Export again starts anew.
//   pause      A>K Pause           R>A Paused +host state (at the next barrier), or Failed. Stays paused if the agent goes away.
//   go on      A>K Resume          R>A Running. Source: without a descriptor; before Paused it withdraws the pause (was_paused 0,
//              answered by the keeper). Standby: +host state; Failed if it does not fit. The deadline is set before the rank goes on.
//   leave      A>K Moved           K>A Done, R ends, K>A RankExited (killed after 5 s if it does not end). Only while paused.
//   lease      A>K SetDeadline     K>A Done. At the deadline the keeper closes the gate, stops the rank and says RankStopped; a later deadline (or
//              none) opens and continues it and says RankContinued (before Done or Running).
//   end        A>K Stop, Kill      K>A Done, then RankExited;  A>K Shutdown: the keeper ends (refused while the rank lives).
//   refusals   K>A or R>A Failed with the request, the refused type and the reason.
//
// Threads: pure functions and values. Times are CLOCK_BOOTTIME nanoseconds (base/clock.h), sizes are bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/base/result.h"

namespace ckpt::local {

inline constexpr std::uint32_t kMagic = 0x434b504c;  // "LPKC" in memory
inline constexpr std::uint16_t kProtocolVersion = 1;
inline constexpr std::size_t kMaxMessageBytes = 64 * 1024;
inline constexpr std::size_t kMaxDescriptors = 64;
inline constexpr std::size_t kMaxRecords = 64;  // of one batch
inline constexpr std::uint32_t kMaxRanks = 1024;
inline constexpr std::size_t kMaxDims = 8;
inline constexpr std::size_t kNameBytes = 256;  // with the terminating NUL
inline constexpr std::uint64_t kMaxUnexportableBytes = 64ull << 20;
inline constexpr std::uint64_t kMaxHostStateBytes = 4ull << 30;
inline constexpr std::uint64_t kNoRegion = 0;
inline constexpr Nanos kNoDeadline = 0;

enum class MessageType : std::uint16_t {
  kHello = 1,
  kWelcome = 2,
  kAttach = 10,
  kStatus = 11,
  kDone = 12,
  kFailed = 13,
  kDescribe = 20,
  kTensors = 21,
  kRegions = 22,
  kDescribeEnd = 23,
  kExport = 30,
  kExportBatch = 31,
  kExportAck = 32,
  kExportEnd = 33,
  kRegionFreed = 34,
  kRegionFreedAck = 35,
  kTensorDropped = 36,
  kStopExport = 37,
  kReady = 40,
  kStandbyReady = 41,
  kPause = 42,
  kPaused = 43,
  kResume = 44,
  kRunning = 45,
  kMoved = 46,
  kSetDeadline = 50,
  kStop = 51,
  kKill = 52,
  kShutdown = 53,
  kRankStopped = 54,
  kRankContinued = 55,
  kRankExited = 56,
};
[[nodiscard]] std::string_view to_string(MessageType type) noexcept;

enum class Role : std::uint32_t { kFresh = 0, kStandby = 1 };

// Where a rank is, as its keeper knows it.
enum class Phase : std::uint32_t {
  kStarting = 0,      // the process runs, ckpt_init not called yet
  kConnected = 1,     // ckpt_init called, ckpt_ready not
  kStandbyReady = 2,  // a standby that waits for Resume
  kResuming = 3,      // a standby or paused rank that was told to go on and has not said Running
  kRunning = 4,
  kPausing = 5,  // a pause is asked for, the rank runs towards its next barrier
  kPaused = 6,
  kLeaving = 7,  // Moved was sent
  kExited = 8,
};
[[nodiscard]] std::string_view to_string(Phase phase) noexcept;

struct MessageHeader {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kProtocolVersion;
  MessageType type{};
  std::uint32_t rank = 0;
  std::uint32_t bytes = 0;  // of the body
  std::uint64_t request = 0;
};
static_assert(sizeof(MessageHeader) == 24);

// A NUL-terminated text of fixed room; longer input is cut. Accepted by parse() without control characters only.
template <std::size_t kBytes>
struct FixedText {
  std::array<char, kBytes> bytes{};
  FixedText() = default;
  explicit FixedText(std::string_view text) { assign(text); }
  void assign(std::string_view text) {
    bytes.fill(0);
    text.copy(bytes.data(), kBytes - 1);
  }
  [[nodiscard]] std::string_view view() const { return std::string_view(bytes.data()); }
  [[nodiscard]] std::string str() const { return std::string(view()); }
};
using Name = FixedText<kNameBytes>;
using Text = FixedText<512>;

struct RegionRecord {    // one physical allocation
  std::uint64_t id = 0;  // never 0, never reused by a rank
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;  // a multiple of the driver's granularity
  std::array<std::uint8_t, 16> device_uuid{};
};
static_assert(sizeof(RegionRecord) == 40);

struct TensorRecord {
  Name name;
  std::uint64_t region = kNoRegion;  // kNoRegion: cannot be exported, its bytes travel with the host state
  std::uint64_t offset = 0;          // in the region
  std::uint64_t bytes = 0;
  std::uint32_t dtype = 0;  // ckpt_dtype
  std::uint32_t kind = 0;   // ckpt_kind; CKPT_SCRATCH is not copied
  std::uint32_t dims = 0;
  std::uint32_t reserved = 0;
  std::array<std::uint64_t, kMaxDims> shape{};
};
static_assert(sizeof(TensorRecord) == 256 + 24 + 16 + 64);

// Bytes of one element (0: no such ckpt_dtype), and of a whole tensor (false: overflow, no such dtype or an empty dimension).
[[nodiscard]] std::uint64_t dtype_bytes(std::uint32_t dtype) noexcept;
bool shape_bytes(std::uint32_t dtype, std::span<const std::uint64_t> shape, std::uint64_t& bytes) noexcept;

struct StateSummary {
  std::uint64_t tensors = 0;
  std::uint64_t regions = 0;
  std::uint64_t region_bytes = 0;  // physical memory
  std::uint64_t state_bytes =
      0;  // what must be copied out of regions: union of the non-scratch tensors in them
  std::uint64_t host_state_bytes = 0;    // fixed-size host state (callbacks are known at the barrier only)
  std::uint64_t unexportable_bytes = 0;  // non-scratch tensors outside of regions
  std::uint32_t ready = 0;               // ckpt_ready has been called
  std::uint32_t movable = 0;             // 0: `reason` says what to change
  Text reason;
};

// ---- rank <-> keeper
struct Hello {
  static constexpr auto kType = MessageType::kHello;
  std::uint32_t pid = 0;
  std::uint32_t abi = 0;
};
struct Welcome {  // 1 descriptor: the control page
  static constexpr auto kType = MessageType::kWelcome;
  Role role = Role::kFresh;
  std::uint32_t rank_count = 1;
  std::uint64_t incarnation = 0;
  Name job;
};

// ---- agent -> keeper, and its answers
struct Attach {
  static constexpr auto kType = MessageType::kAttach;
};
struct Status {
  static constexpr auto kType = MessageType::kStatus;
  Name job;  // the job's id
  std::uint64_t incarnation = 0;
  Role role = Role::kFresh;  // as started; a resumed standby keeps it and has phase kRunning
  Phase phase = Phase::kStarting;
  std::uint32_t keeper_pid = 0;
  std::uint32_t rank_pid = 0;
  std::uint64_t rank_start_ticks =
      0;                         // field 22 of /proc/PID/stat: with the pid it names the process for ever
  std::int32_t wait_status = 0;  // of waitpid; meaningful in phase kExited
  std::uint32_t ended_by_keeper = 0;  // it was told to end (Stop, Kill, Moved)
  std::uint32_t stopped = 0;          // by an ended lease
  std::uint32_t exporting = 0;
  Nanos deadline_ns = kNoDeadline;
  Nanos barrier_entry_ns = 0;  // of the last pause
  Nanos quiesced_ns = 0;
  Nanos resumed_ns = 0;  // of the last Running
};
struct Done {
  static constexpr auto kType = MessageType::kDone;
};
struct Failed {
  static constexpr auto kType = MessageType::kFailed;
  std::uint32_t refused_type = 0;  // MessageType of the request
  std::uint32_t code = 0;          // ErrorCode
  Text text;
};
[[nodiscard]] Error to_error(const Failed& failed);
[[nodiscard]] Failed to_failed(MessageType refused, const Error& error);

// ---- describe and export
struct Describe {
  static constexpr auto kType = MessageType::kDescribe;
};
struct Tensors {
  static constexpr auto kType = MessageType::kTensors;
  std::vector<TensorRecord> records;
};
struct Regions {
  static constexpr auto kType = MessageType::kRegions;
  std::vector<RegionRecord> records;
};
struct DescribeEnd {
  static constexpr auto kType = MessageType::kDescribeEnd;
  StateSummary summary;
};
struct Export {
  static constexpr auto kType = MessageType::kExport;
};
struct ExportBatch {  // one descriptor per record, in order
  static constexpr auto kType = MessageType::kExportBatch;
  std::uint64_t sequence = 0;
  std::vector<RegionRecord> records;
};
struct ExportAck {
  static constexpr auto kType = MessageType::kExportAck;
  std::uint64_t sequence = 0;
};
struct ExportEnd {
  static constexpr auto kType = MessageType::kExportEnd;
  StateSummary summary;
};
struct RegionFreed {
  static constexpr auto kType = MessageType::kRegionFreed;
  std::uint64_t id = 0, generation = 0;
};
struct RegionFreedAck {
  static constexpr auto kType = MessageType::kRegionFreedAck;
  std::uint64_t id = 0, generation = 0;
};
struct TensorDropped {
  static constexpr auto kType = MessageType::kTensorDropped;
  Name name;
};
struct StopExport {
  static constexpr auto kType = MessageType::kStopExport;
};

// ---- pause and resume
struct Ready {
  static constexpr auto kType = MessageType::kReady;
};
struct StandbyReady {
  static constexpr auto kType = MessageType::kStandbyReady;
};
struct Pause {
  static constexpr auto kType = MessageType::kPause;
};
struct Paused {  // 1 descriptor: the host state
  static constexpr auto kType = MessageType::kPaused;
  Nanos barrier_entry_ns = 0;
  Nanos quiesced_ns = 0;
  std::uint64_t host_state_bytes = 0;
};
struct Resume {  // with host_state_bytes > 0 (standby) 1 descriptor: the host state, as it came with Paused
  static constexpr auto kType = MessageType::kResume;
  std::uint64_t incarnation = 0;
  Nanos deadline_ns = kNoDeadline;
  std::uint64_t host_state_bytes = 0;
};
struct Running {
  static constexpr auto kType = MessageType::kRunning;
  std::uint64_t incarnation = 0;
  Nanos resumed_ns = 0;
  std::uint32_t was_paused = 0;
  std::uint32_t reserved = 0;
};
struct Moved {
  static constexpr auto kType = MessageType::kMoved;
};

// ---- leases and ends
struct SetDeadline {
  static constexpr auto kType = MessageType::kSetDeadline;
  Nanos deadline_ns = kNoDeadline;
};
struct Stop {
  static constexpr auto kType = MessageType::kStop;
  std::uint64_t grace_ms = 0;
};  // SIGTERM, then SIGKILL
struct Kill {
  static constexpr auto kType = MessageType::kKill;
};
struct Shutdown {
  static constexpr auto kType = MessageType::kShutdown;
};
struct RankStopped {
  static constexpr auto kType = MessageType::kRankStopped;
  Nanos at_ns = 0;
};
struct RankContinued {
  static constexpr auto kType = MessageType::kRankContinued;
  Nanos at_ns = 0;
};
struct RankExited {
  static constexpr auto kType = MessageType::kRankExited;
  std::int32_t wait_status = 0;
  std::uint32_t ended_by_keeper = 0;
};

using Body = std::variant<Hello, Welcome, Attach, Status, Done, Failed, Describe, Tensors, Regions,
                          DescribeEnd, Export, ExportBatch, ExportAck, ExportEnd, RegionFreed, RegionFreedAck,
                          TensorDropped, StopExport, Ready, StandbyReady, Pause, Paused, Resume, Running,
                          Moved, SetDeadline, Stop, Kill, Shutdown, RankStopped, RankContinued, RankExited>;

struct Message {
  std::uint32_t rank = 0;
  std::uint64_t request = 0;
  Body body;
};
[[nodiscard]] MessageType type_of(const Body& body) noexcept;

// The bytes of one datagram. Batches must not exceed kMaxRecords (kInvalidArgument).
Result<std::vector<std::byte>> encode(const Message& message);

// Checks everything that can be checked without context: header, exact size, counts, enumerators, texts, dims, that offsets and sizes do not
// overflow, and that the number of descriptors fits the message. kProtocol otherwise.
Result<Message> parse(std::span<const std::byte> bytes, std::size_t descriptors);

}  // namespace ckpt::local
