// SPDX-License-Identifier: Apache-2.0
// Messages of the control plane. Three kinds of connection carry them: agent -> coordinator, agent -> agent (the peer
// link: Hello, HelloReply, Ping, Pong and SwitchEnvelope only), and nothing else. The dialer speaks first.
//
//   agent                      coordinator                        other agent
//     | Hello(token)  --------->  |
//     | <------------ HelloReply  |
//     | AgentHello    --------->  |   everything the node has: the coordinator rebuilds its job table from it
//     | <---------------- Welcome |   settings, the peer token
//     | Inventory     --------->  |   again at every change and every few seconds
//     | <--------------- StartJob |
//     | Reply, JobChange ------>  |
//     | <---------------- ReadLog |
//     | LogData       --------->  |
//     | <--------- PrepareContext |   before the switch's PREPARE: what a side needs beyond the pure protocol
//     | <---------- SwitchEnvelope | (PREPARE)
//     | SwitchEnvelope  -------------------------------------->  |   directly, or through the coordinator when that link is cut
//     | MigrationProgress ----->  |   a few times a second, from the source
//     | <-------------- SetLimits |
//     | SourceReport / TargetReport -> |   after RUNS / RELEASED, or at the end of a failed migration
//     | MigrationFailure ------>  |   a reason for people; the switch itself is decided by SwitchEnvelopes alone
//     | <-------------- ForgetJob |
//
// A message whose fields change gets a new type number; kControlVersion is the version of the whole set, compared in
// Hello. Times are CLOCK_BOOTTIME nanoseconds of the node that states them, spans are nanoseconds, sizes are bytes.
// All messages are value types with default constructors (never aggregates: g++ 12 destroys aggregate temporaries in
// co_await twice). Everything a peer sends is checked by whoever uses it: decoding bounds sizes only.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/wire/codec.h"

namespace ckpt::wire {

inline constexpr std::uint32_t kControlVersion = 1;

enum class ControlType : std::uint16_t {
  kHello = 1,
  kHelloReply = 2,
  kPing = 3,
  kPong = 4,
  kAgentHello = 16,
  kWelcome = 17,
  kInventory = 18,
  kJobChange = 19,
  kLogData = 20,
  kMigrationProgress = 21,
  kSourceReport = 22,
  kTargetReport = 23,
  kMigrationFailure = 24,
  kReply = 25,
  kStartJob = 32,
  kStopJob = 33,
  kReadLog = 34,
  kSetLimits = 35,
  kForgetJob = 36,
  kPrepareContext = 37,
  kSwitchEnvelope = 48,
};

// ---- Connection -------------------------------------------------------------------------------------------------

struct Hello {
  static constexpr ControlType kType = ControlType::kHello;
  Hello() = default;
  std::uint32_t version = kControlVersion;
  std::string name;   // the dialer's node name
  std::string token;  // hex; of the 0600 file both sides know
  template <class Archive>
  void serialize(Archive& ar) {
    ar(version, name, token);
  }
};

struct HelloReply {
  static constexpr ControlType kType = ControlType::kHelloReply;
  HelloReply() = default;
  std::uint32_t version = kControlVersion;
  bool accepted = false;
  std::string reason;  // why not; for the dialer's log
  template <class Archive>
  void serialize(Archive& ar) {
    ar(version, accepted, reason);
  }
};

struct Ping {
  static constexpr ControlType kType = ControlType::kPing;
  Ping() = default;
  std::uint64_t cookie = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(cookie);
  }
};

struct Pong {
  static constexpr ControlType kType = ControlType::kPong;
  Pong() = default;
  std::uint64_t cookie = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(cookie);
  }
};

// ---- What a node has --------------------------------------------------------------------------------------------

struct GpuInfo {
  GpuInfo() = default;
  std::uint32_t index = 0;
  std::string uuid;
  std::string name;
  std::string model;  // compared by placement: equal models can exchange transparent jobs
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  bool healthy = true;
  std::string health_reason;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(index, uuid, name, model, total_bytes, free_bytes, healthy, health_reason);
  }
};

enum class JobRole : std::uint8_t { kInvalid = 0, kFresh = 1, kStandby = 2 };

enum class JobPhase : std::uint8_t {
  kInvalid = 0,
  kStarting = 1,  // the keeper has started the ranks, none has reported ready
  kRunning = 2,
  kStandby = 3,  // a target's instance that waits in ckpt_ready
  kPaused = 4,   // held at a barrier by a switch
  kExited = 5,   // all ranks are gone; exit_code says how
  kMoved = 6,    // ended because another instance goes on elsewhere
};
[[nodiscard]] std::string_view to_string(JobPhase phase) noexcept;

struct RankState {
  RankState() = default;
  std::uint32_t rank = 0;
  std::int32_t pid = 0;
  std::uint32_t gpu_index = 0;
  std::uint64_t state_bytes = 0;  // what a migration of this rank would move; 0 while unknown
  template <class Archive>
  void serialize(Archive& ar) {
    ar(rank, pid, gpu_index, state_bytes);
  }
};

// One running (or ended, until ForgetJob) instance of a job on one node.
struct JobInstance {
  JobInstance() = default;
  std::string job_id;
  std::string name;
  std::uint64_t incarnation = 0;
  JobRole role = JobRole::kInvalid;
  JobPhase phase = JobPhase::kInvalid;
  std::int32_t exit_code = -1;  // with kExited: 0..255, 128 + signal
  bool movable = false;
  std::string reason;  // why it is not movable, or why it could not start
  std::int64_t started_unix_ms = 0;
  std::uint64_t log_bytes = 0;
  std::vector<RankState> ranks;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(job_id, name, incarnation, role, phase, exit_code, movable, reason, started_unix_ms, log_bytes, ranks);
  }
};

struct NodeInventory {
  NodeInventory() = default;
  std::string node;
  std::string peer_address;  // host:port where other agents reach this one
  std::vector<GpuInfo> gpus;
  std::vector<JobInstance> jobs;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(node, peer_address, gpus, jobs);
  }
};

struct AgentHello {
  static constexpr ControlType kType = ControlType::kAgentHello;
  AgentHello() = default;
  std::string software_version;
  NodeInventory inventory;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(software_version, inventory);
  }
};

struct Welcome {
  static constexpr ControlType kType = ControlType::kWelcome;
  Welcome() = default;
  std::int64_t lease_term_ns = 0;
  std::int64_t switch_timeout_ns = 0;
  std::string peer_token;  // hex; agents ask it of each other on the peer link
  template <class Archive>
  void serialize(Archive& ar) {
    ar(lease_term_ns, switch_timeout_ns, peer_token);
  }
};

struct Inventory {
  static constexpr ControlType kType = ControlType::kInventory;
  Inventory() = default;
  NodeInventory inventory;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(inventory);
  }
};

// One instance changed. The same facts follow in the next Inventory, so a lost one does no harm.
struct JobChange {
  static constexpr ControlType kType = ControlType::kJobChange;
  JobChange() = default;
  JobInstance job;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(job);
  }
};

// ---- Jobs -------------------------------------------------------------------------------------------------------

struct RankSpec {
  RankSpec() = default;
  std::uint32_t rank = 0;
  std::uint32_t gpu_index = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(rank, gpu_index);
  }
};

struct JobSpec {
  JobSpec() = default;
  std::string job_id;
  std::string name;
  std::vector<std::string> argv;
  std::vector<std::string> env;  // KEY=VALUE
  std::string cwd;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t gpu_memory_bytes = 0;  // what the submitter asked for, 0 = nothing said
  std::vector<RankSpec> ranks;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(job_id, name, argv, env, cwd, uid, gid, incarnation, gpu_memory_bytes, ranks);
  }
};

// The answer to StartJob, StopJob, ReadLog that failed, SetLimits and ForgetJob.
struct Reply {
  static constexpr ControlType kType = ControlType::kReply;
  Reply() = default;
  std::uint64_t request_id = 0;
  bool ok = true;
  std::uint8_t error_code = 0;  // ckpt::ErrorCode
  std::string message;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(request_id, ok, error_code, message);
  }
};

// Repeated with the same job and incarnation it is answered with the first one's outcome and starts nothing.
struct StartJob {
  static constexpr ControlType kType = ControlType::kStartJob;
  StartJob() = default;
  std::uint64_t request_id = 0;
  JobSpec spec;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(request_id, spec);
  }
};

// SIGTERM, after the grace SIGKILL, to every instance of the job with this incarnation or a lower one.
struct StopJob {
  static constexpr ControlType kType = ControlType::kStopJob;
  StopJob() = default;
  std::uint64_t request_id = 0;
  std::string job_id;
  std::uint64_t incarnation = 0;
  std::int64_t grace_ns = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(request_id, job_id, incarnation, grace_ns);
  }
};

// The coordinator needs nothing of this job any more: the agent removes its folders (logs, status) of ended instances.
struct ForgetJob {
  static constexpr ControlType kType = ControlType::kForgetJob;
  ForgetJob() = default;
  std::uint64_t request_id = 0;
  std::string job_id;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(request_id, job_id);
  }
};

struct ReadLog {
  static constexpr ControlType kType = ControlType::kReadLog;
  ReadLog() = default;
  std::uint64_t request_id = 0;
  std::string job_id;
  std::uint64_t incarnation = 0;
  std::uint64_t offset = 0;
  std::uint32_t limit = 0;  // at most kMaxLogBytes
  std::int64_t follow_ns =
      0;  // with nothing at the offset yet: answer when there is, at the end, or after this
  template <class Archive>
  void serialize(Archive& ar) {
    ar(request_id, job_id, incarnation, offset, limit, follow_ns);
  }
};
inline constexpr std::uint32_t kMaxLogBytes = 256 * 1024;

struct LogData {
  static constexpr ControlType kType = ControlType::kLogData;
  LogData() = default;
  std::uint64_t request_id = 0;
  std::uint64_t offset = 0;  // of the first byte of `bytes`
  std::string bytes;
  bool ended = false;  // the instance has ended and `bytes` reaches the end of its log
  template <class Archive>
  void serialize(Archive& ar) {
    ar(request_id, offset, bytes, ended);
  }
};

// ---- Migrations -------------------------------------------------------------------------------------------------

enum class MigrateMode : std::uint8_t { kInvalid = 0, kLive = 1, kStopCopy = 2 };
enum class NotConverged : std::uint8_t { kInvalid = 0, kSwitch = 1, kAbort = 2 };

struct MigrateOptions {
  MigrateOptions() = default;
  MigrateMode mode = MigrateMode::kLive;
  NotConverged if_not_converged = NotConverged::kSwitch;
  std::int64_t max_downtime_ns = 0;
  std::uint64_t bandwidth_bytes_per_second = 0;  // 0 = unlimited
  std::uint32_t max_rounds = 0;                  // 0 = the engine's default
  template <class Archive>
  void serialize(Archive& ar) {
    ar(mode, if_not_converged, max_downtime_ns, bandwidth_bytes_per_second, max_rounds);
  }
};

enum class Side : std::uint8_t { kInvalid = 0, kSource = 1, kTarget = 2 };

// Sent before the PREPARE of the same migration on the same connection, and again before every repetition of it.
// Kept by the agent as long as the migration is open (0600): the peer address and token are what a committed switch
// is finished with while the coordinator is away.
struct PrepareContext {
  static constexpr ControlType kType = ControlType::kPrepareContext;
  PrepareContext() = default;
  std::string migration_id;
  Side side = Side::kInvalid;
  JobSpec
      spec;  // source: the running instance; target: the standby to start (incarnation n+1, its GPU indices)
  std::string peer_node;
  std::string peer_address;
  std::string peer_token;                          // hex
  std::array<std::uint8_t, 32> fingerprint_key{};  // fresh per migration; never over the data transport
  std::array<std::uint8_t, 16> session_token{};    // pairs the two movers
  std::int64_t lease_term_ns = 0;
  std::int64_t switch_timeout_ns = 0;
  MigrateOptions options;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(migration_id, side, spec, peer_node, peer_address, peer_token, fingerprint_key, session_token,
       lease_term_ns, switch_timeout_ns, options);
  }
};

enum class Party : std::uint8_t { kInvalid = 0, kCoordinator = 1, kSource = 2, kTarget = 3 };

// A message of the switch protocol (wire/switch_messages.h), opaque to whoever only passes it on.
struct SwitchEnvelope {
  static constexpr ControlType kType = ControlType::kSwitchEnvelope;
  SwitchEnvelope() = default;
  std::string migration_id;
  Party from = Party::kInvalid;
  Party to = Party::kInvalid;
  std::string payload;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(migration_id, from, to, payload);
  }
};

struct MigrationProgress {
  static constexpr ControlType kType = ControlType::kMigrationProgress;
  MigrationProgress() = default;
  std::string migration_id;
  std::uint32_t round = 0;        // 0 before the first, the final one counts too
  std::uint64_t done_bytes = 0;   // of this round
  std::uint64_t total_bytes = 0;  // of this round, as known now
  std::uint64_t state_bytes = 0;
  std::uint64_t sent_bytes = 0;  // over all rounds
  std::uint64_t remaining_bytes = 0;
  std::uint64_t dirty_bytes_per_second = 0;
  std::uint64_t throughput_bytes_per_second = 0;
  std::int64_t estimate_ns = 0;  // of the downtime, if the switch came now
  std::int64_t eta_ns = 0;       // until the switch, as estimated now; negative = not known
  template <class Archive>
  void serialize(Archive& ar) {
    ar(migration_id, round, done_bytes, total_bytes, state_bytes, sent_bytes, remaining_bytes,
       dirty_bytes_per_second, throughput_bytes_per_second, estimate_ns, eta_ns);
  }
};

// `migrate`'s limits while it runs; absent values are -1.
struct SetLimits {
  static constexpr ControlType kType = ControlType::kSetLimits;
  SetLimits() = default;
  std::uint64_t request_id = 0;
  std::string migration_id;
  std::int64_t max_downtime_ns = -1;
  std::int64_t bandwidth_bytes_per_second = -1;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(request_id, migration_id, max_downtime_ns, bandwidth_bytes_per_second);
  }
};

// What the source measured. Points in time are 0 when they were not reached.
struct SourceReport {
  static constexpr ControlType kType = ControlType::kSourceReport;
  SourceReport() = default;
  std::string migration_id;
  std::int64_t barrier_entered_ns = 0;  // the rank's clock, at the entry of ckpt_barrier
  std::int64_t paused_ns = 0;           // PAUSED has reached the mover
  std::int64_t last_ack_ns = 0;         // the last chunk of the final round is acknowledged
  std::int64_t clock_offset_ns = 0;     // target's clock minus source's clock
  std::uint32_t rounds = 0;             // the final one included
  std::uint64_t state_bytes = 0;
  std::uint64_t sent_bytes = 0;     // chunk payload before encoding
  std::uint64_t wire_bytes = 0;     // after encoding, headers included
  std::uint64_t dirty_bytes = 0;    // sent in the final round
  std::uint64_t context_bytes = 0;  // moved by the driver's own checkpoint
  std::uint64_t host_bytes = 0;
  std::uint64_t resent_chunks = 0;
  std::uint64_t link_bytes_per_second = 0;  // a plain stream, measured beside the rounds
  std::uint64_t scan_bytes_per_second = 0;  // a plain read of the memory
  std::int64_t scan_ns = 0;                 // of the final scan
  std::int64_t copy_ns = 0;                 // busy time of the final round's copies
  std::int64_t estimate_ns = 0;             // the last estimate before the barrier
  bool converged = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(migration_id, barrier_entered_ns, paused_ns, last_ack_ns, clock_offset_ns, rounds, state_bytes,
       sent_bytes, wire_bytes, dirty_bytes, context_bytes, host_bytes, resent_chunks, link_bytes_per_second,
       scan_bytes_per_second, scan_ns, copy_ns, estimate_ns, converged);
  }
};

// What the target measured, on its own clock.
struct TargetReport {
  static constexpr ControlType kType = ControlType::kTargetReport;
  TargetReport() = default;
  std::string migration_id;
  bool verified = false;
  std::int64_t verified_ns = 0;     // the roots were compared
  std::int64_t committed_ns = 0;    // COMMITTED is durable
  std::int64_t resume_sent_ns = 0;  // host state is on its way to the standby
  std::int64_t resumed_ns = 0;      // the rank's clock, as ckpt_ready returns
  std::uint64_t scan_bytes_per_second = 0;
  std::int64_t scan_ns = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(migration_id, verified, verified_ns, committed_ns, resume_sent_ns, resumed_ns, scan_bytes_per_second,
       scan_ns);
  }
};

// Why a side cannot go on ("tensor w1: float32[4,4] here, float16[4,4] there"), sent before its switch message that
// ends the migration.
struct MigrationFailure {
  static constexpr ControlType kType = ControlType::kMigrationFailure;
  MigrationFailure() = default;
  std::string migration_id;
  Side side = Side::kInvalid;
  std::uint8_t error_code = 0;  // ckpt::ErrorCode; kRefused and kInvalidArgument: nothing was touched
  std::string message;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(migration_id, side, error_code, message);
  }
};

}  // namespace ckpt::wire
