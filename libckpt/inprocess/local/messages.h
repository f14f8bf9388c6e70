// SPDX-License-Identifier: Apache-2.0
// The local protocol: one message per SOCK_SEQPACKET datagram between rank and keeper, and between keeper and
// agent. A message is a fixed header, a fixed POD body (batches: a count and that many POD records) and at
// most 64 descriptors. Both sides run on the same machine and are of the same build family. Messages use
// native byte order, checked by magic and version. Data of a peer is untrusted until parse() has accepted the
// bytes.
//
// The sequence is below (A agent, K keeper, R rank). The keeper relays "A>R" and "R>A" with their
// descriptors. A rank's message is dropped while no agent is attached. The requester chooses `request` (not
// 0), and every answer repeats it; 0 marks an event.
//
//   start      R>K Hello           K>R Welcome +control page
//   attach     A>K Attach          K>A Status (also later, for each Attach; a second connection replaces the
//              first)
//   ready      R>A Ready           a fresh instance has returned from ckpt_ready; or
//              R>A StandbyReady    a standby waits in ckpt_ready for Resume
//   describe   A>R Describe        R>A Tensors* Regions* DescribeEnd
//   export     A>R Export          R>A Tensors* (ExportBatch +fds, A>R ExportAck)* ExportEnd: the state at
//              one instant, complete without Describe. The rank closes a batch's descriptors once it is sent;
//              it sends the next batch after the ack. From then on, with the Export's request: Tensors (named
//              since), TensorDropped, ExportBatch (allocated since; acked, too), RegionFreed (unmap and close
//              now; A>R RegionFreedAck when no process of ours holds it any more).
//              A>R StopExport      K>A Done. Also done by the keeper when the agent disconnects. Export again
//              starts again.
//   pause      A>K Pause           R>A Paused +host state (at the next barrier), or Failed. Stays paused if
//              the agent goes away.
//   gather     A>K StopAt          K>A Counted, of a rank of a gang (GANG-1, GANG-2). It waits at that barrier, or at
//              its next one, until Pause for that barrier, or Resume, or the agent's end. kRefused: an attempt
//              that is older, or was given up.
//   go on      A>K Resume          R>A Running. Source: without a descriptor; before Paused it withdraws the
//              pause (was_paused 0, answered by the keeper). Standby: +host state; Failed if it does not fit.
//              The deadline is set before the rank goes on.
//   gate       A>K Resume with `into_gate`, for a standby +host state: R>A InGate, once it has the state, or Failed. It
//              waits behind its closed gate until Resume without. Repeated: InGate again.
//   groups     A>R AskGroups       R>A Groups (0 or 1), GroupsEnd: the groups of the rank that a moved rank belongs to, with
//              the tickets that this rank makes (protocol/gang/gang_plan.h).
//              A>R JoinGroups      R>A GroupsJoined, or Failed: the new groups are made and tried out, beside the old ones.
//              Resume with that `epoch` puts them in their place; A>R DiscardGroups, which has no answer, ends them.
//   leave      A>K Moved           K>A Done, R ends, K>A RankExited (killed after 5 s if it does not end).
//              Only while paused.
//   lease      A>K SetDeadline     K>A Done. At the deadline the keeper closes the gate, stops the rank and
//              sends RankStopped; a later deadline (or none) opens and continues it and sends RankContinued
//              (before Done or Running).
//   end        A>K Stop, Kill      K>A Done, then RankExited;  A>K Shutdown: the keeper ends (refused while
//              the rank lives).
//   refusals   K>A or R>A Failed with the request, the refused type and the reason.
//
// Transparent mode is for a rank whose Hello names it: an unmodified program under the shim. Such a rank has
// no ready, standby, host state or tensors of its own. It runs from Hello on (the keeper sends Ready for it).
// Every region is reported as one tensor `region:ID` (u8, its whole extent, kind buffer). Pause also goes to
// the rank as a message. K>R Resume with the Pause's request and incarnation 0 withdraws the Pause.
// RankStopped (the lease has expired) and RankContinued (the lease is valid again) go to the rank, too.
// Paused has no descriptor. While an export is active, Paused is sent after every region has been sent and
// acknowledged. From here on the keeper holds memory for the rank, in two sets of descriptors:
//   exported   a duplicate of each descriptor of the export's batches. RegionFreed drops one before the agent
//              knows of it; StopExport, a new Export and the agent's end drop all, but not while the rank's
//              memory is not mapped (`memory` of Status): then the set is what the job lives from.
//   arrived    what A>K Deposit* brought; another migration's Deposit replaces it, A>K Withdraw drops it, A>K
//              WithdrawRegions some of it (the job has freed them). It outlives agents.
// All of these requests need a paused rank. A refused request is answered with Failed (kRefused: nothing was
// changed):
//   release    A>K Release         the keeper adds what set `exported` holds; R>A Released: the rank has
//              unmapped and released all its device memory, addresses stay reserved. Refused if the set is
//              not exactly the rank's regions. Again after Mapped, too. With `discard`, which the keeper
//              sends while memory is kMapping: all that is mapped came after the last Release; none needs it.
//   deposit    A>K Deposit +fds    K>A Done, batch by batch
//   map        A>K Map             (K>R MapBatch +fds, R>K MapAck)* of the set that is named (kMade: none),
//              then K>R Map; R>A Mapped, once the rank has all its regions at their old addresses. On Failed
//              what was mapped is released again. Sets stay until they are dropped by the agent.
//   make       A>R Make (ids)      R>A Made +fds: the rank has new memory of its own at the old addresses of
//              these regions, for a mover to fill; Map kMade ends it.
//   fill       A>K Fetch           K>A Held +fds: some of a set, for the mover to copy from; largest regions
//              first, and no more bytes at a time than the largest has. `from` is 0, then the one in Held;
//              Done: there are no more.
//              A>K Replace +fds    K>A Done: these regions of the set are in the rank's new memory now. So a
//              set is always whole, and twice there is at most as much as one region. A side that restarts
//              (Release, Make) copies from what has been replaced already.
//   go on      Resume              refused while memory is not mapped.
//   whole      A>K AwaitMemory     K>A Done once the program's host memory is there, which may follow a restore
//   dump       A>R PrepareDump     only while memory is released. R: unmaps the control page, DumpReady,
//              closes its socket; K>A DumpReady once it is closed: phase kDumped, and what can be dumped
//              holds nothing of the keeper's. Its service thread waits in sigwaitinfo.
//   reattach   A>K Reattach        (the dump did not lead anywhere, or the process has been restored: then
//              this is another keeper) K sends that thread a signal with a token (reattach.h), continues the
//              process, and listens on an abstract socket of that name (an old path in the process's memory
//              means nothing elsewhere). R>K Hello `restored`, K>R Welcome, K>A Done: phase kPaused, memory
//              released. With `restore_thread` no code of the program's own runs before Resume.
//
// Threads: pure functions and plain values. Times are CLOCK_BOOTTIME nanoseconds (base/clock.h), and sizes
// are bytes.
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
#include "libckpt/base/migration_mode.h"
#include "libckpt/base/result.h"

namespace ckpt::local {

inline constexpr std::uint32_t kMagic = 0x434b504c;  // the magic of a local message: the bytes "LPKC" in
                                                     // memory
inline constexpr std::uint16_t kProtocolVersion = 6;
inline constexpr std::size_t kMaxMessageBytes = 64 * 1024;
inline constexpr std::size_t kMaxDescriptors = 64;
inline constexpr std::size_t kMaxRecords = 64;  // the maximum number of records in one batch
inline constexpr std::uint32_t kMaxRanks = 1024;
inline constexpr std::size_t kMaxDims = 8;
inline constexpr std::size_t kNameBytes = 256;  // the maximum size of a name, including the terminating NUL
inline constexpr std::uint64_t kMaxUnexportableBytes = 64ull << 20;
inline constexpr std::uint64_t kMaxHostStateBytes = 4ull << 30;
inline constexpr std::size_t kTicketBytes = 512;
inline constexpr std::size_t kMaxGpus = 16;  // the maximum number of GPUs of one rank
inline constexpr std::uint64_t kNoRegion = 0;
inline constexpr Nanos kNoDeadline = 0;

enum class MessageType : std::uint16_t {
#define CKPT_MESSAGE_TYPE(number, name) k##name = number,
#include "libckpt/inprocess/local/message_types.def"
#undef CKPT_MESSAGE_TYPE
};
[[nodiscard]] std::string_view to_string(MessageType type) noexcept;

enum class Role : std::uint32_t { kFresh = 0, kStandby = 1 };
// The migration mode in messages: 0 cooperative, 1 transparent. An adopted process has no rank that could
// send Hello. Its keeper treats it as transparent.
struct ModeNumber {
  constexpr ModeNumber() = default;
  constexpr ModeNumber(MigrationMode mode) : number(mode == MigrationMode::kCooperative ? 0 : 1) {}
  constexpr operator MigrationMode() const {
    return number == 0 ? MigrationMode::kCooperative : MigrationMode::kTransparent;
  }
  [[nodiscard]] constexpr bool is_known() const { return number <= 1; }
  std::uint32_t number = 0;
};

// The phase of a rank, as its keeper knows it.
enum class Phase : std::uint32_t {
  kStarting = 0,      // the process runs and has not called ckpt_init yet
  kConnected = 1,     // ckpt_init was called, ckpt_ready was not
  kStandbyReady = 2,  // a standby that waits for Resume
  kResuming = 3,      // a standby or paused rank that has an order to continue and has not sent Running yet
  kRunning = 4,
  kPausing = 5,  // a pause is requested, and the rank runs towards its next barrier
  kPaused = 6,
  kLeaving = 7,  // the message Moved was sent
  kExited = 8,
  kDumped = 9,  // paused, without a connection, for a dump of its process or after a restore
};
[[nodiscard]] std::string_view to_string(Phase phase) noexcept;

// The state of a transparent rank's device memory. Memory in any state except kMapped is incomplete, and the
// rank cannot continue.
enum class MemoryState : std::uint32_t { kMapped = 0, kReleasing = 1, kReleased = 2, kMapping = 3 };
[[nodiscard]] std::string_view to_string(MemoryState state) noexcept;

// The memory that Map maps: memory that the rank has made itself, or one of the keeper's sets.
enum class MemorySet : std::uint32_t { kMade = 0, kExported = 1, kArrived = 2 };

struct MessageHeader {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kProtocolVersion;
  MessageType type{};
  std::uint32_t rank = 0;
  std::uint32_t bytes = 0;  // the size of the body
  std::uint64_t request = 0;
};
static_assert(sizeof(MessageHeader) == 24);

// A NUL-terminated text of fixed size. Longer input is truncated. parse() accepts it only without control
// characters.
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

struct RegionRecord {    // a record of one physical allocation
  std::uint64_t id = 0;  // the number of the region, which is never 0 and never reused by a rank
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;  // the size of the region, a multiple of the driver's granularity
  std::array<std::uint8_t, 16> device_uuid{};
};
static_assert(sizeof(RegionRecord) == 40);

struct RegionKey {  // identifies a region; ids are never reused, so with an unexpected generation the id
                    // decides
  std::uint64_t id = 0;
  std::uint64_t generation = 0;
};

// Returns a number for a region. The sum of these numbers over the regions of a set identifies the set, in
// any order of the regions. It protects against mistakes, not against attacks.
[[nodiscard]] std::uint64_t region_digest(std::uint64_t id, std::uint64_t generation) noexcept;

struct GpuIdentity {  // the properties of a GPU that a program can query
  std::array<std::uint8_t, 16> uuid{};
  std::uint32_t ordinal = 0;  // the rank's device ordinal
  std::uint32_t pci_domain = 0;
  std::uint32_t pci_bus = 0;
  std::uint32_t pci_device = 0;
};
static_assert(sizeof(GpuIdentity) == 32);

struct TensorRecord {
  Name name;
  std::uint64_t region = kNoRegion;  // the region of the tensor; kNoRegion if the tensor cannot be exported,
                                     // so that its bytes travel with the host state
  std::uint64_t offset = 0;          // the offset in the region
  std::uint64_t bytes = 0;
  std::uint32_t dtype = 0;  // the type of the elements, a ckpt_dtype
  std::uint32_t kind = 0;   // the kind of the tensor, a ckpt_kind; CKPT_SCRATCH is not copied
  std::uint32_t dims = 0;
  std::uint32_t reserved = 0;
  std::array<std::uint64_t, kMaxDims> shape{};
};
static_assert(sizeof(TensorRecord) == 256 + 24 + 16 + 64);

// Returns the bytes of one element (0: no such ckpt_dtype). shape_bytes() computes the bytes of a whole
// tensor and returns false for an overflow, no such dtype or an empty dimension.
[[nodiscard]] std::uint64_t dtype_bytes(std::uint32_t dtype) noexcept;
bool shape_bytes(std::uint32_t dtype, std::span<const std::uint64_t> shape, std::uint64_t& bytes) noexcept;

struct StateSummary {
  std::uint64_t tensors = 0;
  std::uint64_t regions = 0;
  std::uint64_t region_bytes = 0;  // the bytes of physical memory in regions
  std::uint64_t state_bytes =
      0;  // the bytes that must be copied out of regions: the union of the non-scratch tensors in them
  // Host state of fixed size (callbacks are known only at the barrier). In transparent mode: host memory that
  // was ever passed to devices, which may write it unnoticed.
  std::uint64_t host_state_bytes = 0;
  std::uint64_t unexportable_bytes = 0;  // the bytes of non-scratch tensors outside regions
  std::uint32_t ready = 0;               // whether ckpt_ready has been called
  std::uint32_t movable = 0;             // whether the rank can move; if 0, `reason` names the thing to
                                         // change so that it can move
  Text reason;
};

// ---- rank <-> keeper
struct Hello {
  static constexpr auto kType = MessageType::kHello;
  std::uint32_t pid = 0;
  std::uint32_t abi = 0;
  ModeNumber mode;
  std::uint32_t restored = 0;  // 1 if the rank left with DumpReady and now returns
};
struct Welcome {  // a message with 1 descriptor, the control page; with counts_barriers also a second: the
                  // page of barriers
  static constexpr auto kType = MessageType::kWelcome;
  Role role = Role::kFresh;
  std::uint32_t rank_count = 1;
  std::uint64_t incarnation = 0;
  std::uint32_t counts_barriers = 0;  // 1 if the rank belongs to a gang
  std::uint32_t reserved = 0;
  Name job;
};

// ---- agent -> keeper, and its answers
struct Attach {
  static constexpr auto kType = MessageType::kAttach;
};
struct Status {
  static constexpr auto kType = MessageType::kStatus;
  Name job;                       // the job's id
  std::uint64_t incarnation = 0;  // the incarnation that ran last; if resumed_ns is 0:
                                  // the incarnation that the rank was started for
  Role role = Role::kFresh;  // the role at start; a resumed standby keeps this role and has phase kRunning
  Phase phase = Phase::kStarting;
  std::uint32_t keeper_pid = 0;
  std::uint32_t rank_pid = 0;
  std::uint64_t rank_start_ticks =
      0;  // field 22 of /proc/PID/stat; together with the pid it identifies the process permanently
  std::int32_t wait_status = 0;       // the status from waitpid; meaningful in phase kExited
  std::uint32_t ended_by_keeper = 0;  // nonzero if an order (Stop, Kill, Moved) terminated the rank
  std::uint32_t stopped = 0;          // nonzero if an expired lease stopped the rank
  std::uint32_t exporting = 0;
  Nanos deadline_ns = kNoDeadline;
  Nanos barrier_entry_ns = 0;  // the time at which the last pause entered the barrier
  Nanos quiesced_ns = 0;
  Nanos resumed_ns = 0;  // the time of the last message Running
  ModeNumber mode;
  MemoryState memory = MemoryState::kMapped;
  std::uint32_t sessions = 0;  // the number of the job's processes that use a GPU; a job with more than one
                               // cannot be moved
  std::uint32_t session_pid =
      0;  // the process of the session (rank_pid is the process that the keeper started); 0 if there is none
  std::uint64_t exported_regions = 0;  // the number of regions in the keeper's set `exported`
  std::uint64_t arrived_regions = 0;
  std::uint64_t arrived_migration = 0;
};
struct Done {
  static constexpr auto kType = MessageType::kDone;
};
struct Failed {
  static constexpr auto kType = MessageType::kFailed;
  std::uint32_t refused_type = 0;  // the MessageType of the request
  std::uint32_t code = 0;          // the ErrorCode of the failure
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
struct ExportBatch {  // a message with one descriptor per record, in order
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
  std::uint64_t at_barrier = 0;  // the barrier at which to pause, for a rank that counts barriers; 0 for the
                                 // next one
};
struct Paused {  // a message with 1 descriptor, the host state, if host_state_bytes > 0
  static constexpr auto kType = MessageType::kPaused;
  Nanos barrier_entry_ns = 0;
  Nanos quiesced_ns = 0;
  std::uint64_t host_state_bytes = 0;
  std::uint64_t barrier = 0;  // the number of the rank's barrier; 0 if the rank does not count barriers
};
struct Resume {  // a message with 1 descriptor if host_state_bytes > 0 (standby): the host state, as it came
                 // with Paused
  static constexpr auto kType = MessageType::kResume;
  std::uint64_t incarnation = 0;
  Nanos deadline_ns = kNoDeadline;
  std::uint64_t host_state_bytes = 0;
  std::uint64_t epoch = 0;      // the epoch of JoinGroups: the rank uses these groups from now on; 0 for no
                                // change
  std::uint32_t into_gate = 0;  // 1 if the rank runs no further than its gate; the deadline then has no
                                // effect
  std::uint32_t reserved = 0;
};
struct InGate {
  static constexpr auto kType = MessageType::kInGate;
  std::uint64_t incarnation = 0;
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

// ---- the common step of a gang
struct StopAt {
  static constexpr auto kType = MessageType::kStopAt;
  std::uint64_t attempt = 0;  // the number of the attempt, never 0
  std::uint64_t barrier =
      0;  // the barrier, never lowered within an attempt; 0 if the attempt is canceled, so that the rank
          // continues
};
struct Counted {
  static constexpr auto kType = MessageType::kCounted;
  std::uint64_t stop_at = 0;
  std::uint64_t barriers = 0;  // the count of barriers that was read after `stop_at` was written
};

// ---- the groups of a rank (protocol/gang/gang_plan.h)
struct GroupRecord {
  Name name;
  std::uint32_t bytes = 0;  // the size of the ticket; 0 if another member makes it
  std::uint32_t reserved = 0;
  std::array<std::byte, kTicketBytes> ticket{};
};
static_assert(sizeof(GroupRecord) == kNameBytes + 8 + kTicketBytes);
struct AskGroups {
  static constexpr auto kType = MessageType::kAskGroups;
  std::uint64_t epoch = 0;                            // the epoch of the groups, which is not 0 and was never
                                                      // used before for other groups
  std::array<std::uint64_t, kMaxRanks / 64> moved{};  // the ranks that move, with a bit for each rank
};
struct Groups {
  static constexpr auto kType = MessageType::kGroups;
  std::vector<GroupRecord> records;
};
struct GroupsEnd {
  static constexpr auto kType = MessageType::kGroupsEnd;
  std::uint32_t knows_gang = 0;  // 1 if the program has called ckpt_gang or has named groups
  std::uint32_t reserved = 0;
};
struct JoinGroups {
  static constexpr auto kType = MessageType::kJoinGroups;
  std::uint64_t sequence = 0;  // the epoch of the groups
  std::vector<GroupRecord> records;
};
struct GroupsJoined {
  static constexpr auto kType = MessageType::kGroupsJoined;
  std::uint64_t epoch = 0;
};
struct DiscardGroups {
  static constexpr auto kType = MessageType::kDiscardGroups;
  std::uint64_t epoch = 0;
};

// ---- leases and ends
struct SetDeadline {
  static constexpr auto kType = MessageType::kSetDeadline;
  Nanos deadline_ns = kNoDeadline;
};
struct Stop {
  static constexpr auto kType = MessageType::kStop;
  std::uint64_t grace_ms = 0;
};  // sends SIGTERM, then SIGKILL
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

// ---- transparent mode
struct Release {  // the agent leaves it empty; the keeper adds the set `exported`
  static constexpr auto kType = MessageType::kRelease;
  std::uint64_t regions = 0;
  std::uint64_t digest = 0;  // the sum of region_digest() over the regions
  std::uint32_t discard = 0;
  std::uint32_t reserved = 0;
};
struct Released {
  static constexpr auto kType = MessageType::kReleased;
  Nanos at_ns = 0;
};
struct Deposit {  // a message with one descriptor per record, in order
  static constexpr auto kType = MessageType::kDeposit;
  std::uint64_t sequence = 0;
  std::uint64_t migration = 0;
  std::vector<RegionRecord> records;
};
struct Withdraw {
  static constexpr auto kType = MessageType::kWithdraw;
  std::uint64_t migration = 0;
};
struct WithdrawRegions {
  static constexpr auto kType = MessageType::kWithdrawRegions;
  std::uint64_t sequence = 0;
  std::uint64_t migration = 0;
  std::vector<RegionKey> records;
};
struct Map {
  static constexpr auto kType = MessageType::kMap;
  MemorySet set = MemorySet::kMade;
  std::uint32_t gpu_count = 0;
  std::uint64_t migration = 0;               // the migration for the set kArrived, otherwise 0
  std::array<GpuIdentity, kMaxGpus> gpus{};  // the identities of the rank's GPUs from now on; if there are
                                             // none, nothing changes
};
struct MapBatch {  // a message with one descriptor per record, in order
  static constexpr auto kType = MessageType::kMapBatch;
  std::uint64_t sequence = 0;
  std::vector<RegionRecord> records;
};
struct MapAck {
  static constexpr auto kType = MessageType::kMapAck;
  std::uint64_t sequence = 0;
};
struct Mapped {
  static constexpr auto kType = MessageType::kMapped;
  Nanos at_ns = 0;
};
struct Make {
  static constexpr auto kType = MessageType::kMake;
  std::uint64_t sequence = 0;
  std::vector<RegionKey> records;
};
struct Made {  // a message with one descriptor per record, in the order of Make
  static constexpr auto kType = MessageType::kMade;
  std::uint64_t sequence = 0;
  std::vector<RegionRecord> records;
};
struct Fetch {
  static constexpr auto kType = MessageType::kFetch;
  MemorySet set = MemorySet::kArrived;  // the set to read, which is any set except kMade
  std::uint32_t reserved = 0;
  std::uint64_t migration = 0;  // the migration for the set kArrived, otherwise 0
  std::uint64_t from = 0;
};
struct Held {  // a message with one descriptor per record, in order
  static constexpr auto kType = MessageType::kHeld;
  std::uint64_t sequence = 0;  // the value for `from` in the next request
  std::vector<RegionRecord> records;
};
struct Replace {  // a message with one descriptor per record, in order
  static constexpr auto kType = MessageType::kReplace;
  std::uint64_t sequence = 0;
  std::uint64_t migration = 0;  // the migration for the set kArrived; 0 for the set kExported
  std::vector<RegionRecord> records;
};
struct PrepareDump {
  static constexpr auto kType = MessageType::kPrepareDump;
};
struct AwaitMemory {
  static constexpr auto kType = MessageType::kAwaitMemory;
};
struct DumpReady {
  static constexpr auto kType = MessageType::kDumpReady;
};
struct Reattach {
  static constexpr auto kType = MessageType::kReattach;
  // If 0, the whole process continues. Otherwise, it is the id of the driver's thread that restores the
  // context. Only that thread and the rank's service thread run until Resume, for at most `hold_ms`.
  std::uint32_t restore_thread = 0;
  std::uint32_t hold_ms = 0;
};

using Body =
    std::variant<Hello, Welcome, Attach, Status, Done, Failed, Describe, Tensors, Regions, DescribeEnd,
                 Export, ExportBatch, ExportAck, ExportEnd, RegionFreed, RegionFreedAck, TensorDropped,
                 StopExport, Ready, StandbyReady, Pause, Paused, Resume, Running, Moved, SetDeadline, Stop,
                 Kill, Shutdown, RankStopped, RankContinued, RankExited, Release, Released, Deposit, Withdraw,
                 Map, MapBatch, MapAck, Mapped, Make, Made, PrepareDump, DumpReady, Reattach, Fetch, Held,
                 Replace, WithdrawRegions, AwaitMemory, StopAt, Counted, InGate, AskGroups, Groups, GroupsEnd,
                 JoinGroups, GroupsJoined, DiscardGroups>;

struct Message {
  std::uint32_t rank = 0;
  std::uint64_t request = 0;
  Body body;
};
[[nodiscard]] MessageType type_of(const Body& body) noexcept;

// Returns the bytes of one datagram. Returns kInvalidArgument for a batch of more than kMaxRecords records.
Result<std::vector<std::byte>> encode(const Message& message);

// Checks everything that can be checked without context: header, exact size, counts, enumerators, texts and
// dims. Offsets and sizes must not overflow, and the number of descriptors must fit the message. Returns
// kProtocol otherwise.
Result<Message> parse(std::span<const std::byte> bytes, std::size_t descriptors);

}  // namespace ckpt::local
