// SPDX-License-Identifier: Apache-2.0
// Messages of the control plane. Two kinds of connection carry them, the dialer speaks first:
// agent -> coordinator, and agent -> agent (the peer link: Hello, HelloReply, Ping, Pong and kSwitch frames only).
//
//   agent                          coordinator                    other agent
//     | Hello(token)    ------------->  |
//     | <---------------- HelloReply    |
//     | AgentHello      ------------->  |   everything the node has: the job table is rebuilt from it
//     | <------------------- Welcome    |   settings, the peer token
//     | Inventory       ------------->  |   again at every change and every few seconds
//     | <------------------ StartJob    |
//     | Reply, JobChange ------------>  |
//     | <----------- InspectProcess     |
//     | ProcessFacts, Reply --------->  |
//     | <------------------- ReadLog    |
//     | LogData         ------------->  |
//     | <-------------- switch Prepare  |   its `plan` is an encoded MigrationPlan (below)
//     | switch messages ------------->  | ------------------------->  |   a switch frame whose `to` is the other side is
//     | switch messages ----------------------------------------->    |   passed on by the coordinator; or the peer link
//     | MigrationProgress ----------->  |   a few times a second, from the source
//     | <----------------- SetLimits    |
//     | SourceReport, TargetReport -->  |   once the side knows the outcome; repeated after a reconnect until CLOSED
//     | <----------------- ForgetJob    |
//
// Fields are only ever appended (codec.h skips what a newer sender appends); a change of meaning takes a new frame type.
// kControlVersion is the version of the whole set, compared in Hello. Times are CLOCK_BOOTTIME nanoseconds of the node
// that states them, spans nanoseconds, sizes bytes. All are value types and no aggregates (g++ 12 destroys aggregate
// temporaries in co_await twice). Decoding bounds sizes and enums; everything else is checked by whoever uses it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/wire/codec.h"
#include "libckpt/wire/switch_messages.h"

namespace ckpt::wire {

inline constexpr std::uint32_t kControlVersion = 1;

// ---- Connection -------------------------------------------------------------------------------------------------

struct Hello {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kHello;
  Hello() = default;
  std::uint32_t version = kControlVersion;
  std::string name;   // the dialer's node name
  std::string token;  // hex; of the 0600 file both sides know
  template <class A>
  void fields(A& a) {
    a(version, name, token);
  }
};

struct HelloReply {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kHelloReply;
  HelloReply() = default;
  std::uint32_t version = kControlVersion;
  bool accepted = false;
  std::string reason;  // why not; for the dialer's log
  template <class A>
  void fields(A& a) {
    a(version, accepted, reason);
  }
};

struct Ping {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kPing;
  Ping() = default;
  std::uint64_t cookie = 0;
  template <class A>
  void fields(A& a) {
    a(cookie);
  }
};

struct Pong {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kPong;
  Pong() = default;
  std::uint64_t cookie = 0;
  template <class A>
  void fields(A& a) {
    a(cookie);
  }
};

// ---- What a node has --------------------------------------------------------------------------------------------

// Errors of a GPU's memory that were found, and rows of it that were replaced, as NVML counts.
struct GpuErrors {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  GpuErrors() = default;
  bool volatile_known = false;  // since the driver was loaded
  std::uint64_t volatile_corrected = 0;
  std::uint64_t volatile_uncorrected = 0;
  bool aggregate_known = false;  // of the GPU's life
  std::uint64_t aggregate_corrected = 0;
  std::uint64_t aggregate_uncorrected = 0;
  bool rows_known = false;  // remapped for errors of either kind
  std::uint64_t rows_corrected = 0;
  std::uint64_t rows_uncorrected = 0;
  template <class A>
  void fields(A& a) {
    a(volatile_known, volatile_corrected, volatile_uncorrected, aggregate_known, aggregate_corrected,
      aggregate_uncorrected, rows_known, rows_corrected, rows_uncorrected);
  }
};

// How near another GPU of the same node is.
struct GpuPeer {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  GpuPeer() = default;
  std::uint32_t index = 0;
  std::uint32_t nvlinks = 0;  // that are up, to it or to a switch that both hang off
  // As NVML counts: 0 one board, 10 one PCI switch, 20 several, 30 one host bridge, 40 one NUMA node, 50 across the machine.
  std::uint32_t common_ancestor = 50;
  template <class A>
  void fields(A& a) {
    a(index, nvlinks, common_ancestor);
  }
};

struct GpuInfo {
  static constexpr std::uint8_t kVersion = 3, kCompat = 1;
  GpuInfo() = default;
  std::uint32_t index = 0;
  std::string uuid;
  std::string name;
  std::string model;  // compared by placement: equal models can exchange transparent jobs
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  bool healthy = true;
  std::string health_reason;
  std::string bus_id;                 // "DOMAIN:BUS:DEVICE.FUNCTION"
  std::int32_t numa_node = -1;        // whose memory is nearest; -1: not known
  std::string fabric;                 // NVLink domain beyond the node ("CLUSTER/CLIQUE"); empty: none
  std::vector<GpuPeer> peers;         // the node's other GPUs, as far as the driver says
  bool mig = false;                   // divided: the GPU as a whole takes no work
  bool remap_pending = false;         // rows are remapped at the next reset
  bool remap_failed = false;          // a row could not be remapped
  std::uint32_t recovery_action = 0;  // NVML field 230; 0: none
  GpuErrors errors;
  template <class A>
  void fields(A& a) {
    a(index, uuid, name, model, total_bytes, free_bytes, healthy, health_reason, bus_id, numa_node, fabric,
      peers, mig, remap_pending, remap_failed, recovery_action, errors);
  }
};

enum class JobRole : std::uint8_t { kInvalid = 0, kFresh = 1, kStandby = 2 };
[[nodiscard]] constexpr bool is_known(JobRole r) {
  return r == JobRole::kFresh || r == JobRole::kStandby;
}

enum class JobPhase : std::uint8_t {
  kInvalid = 0,
  kStarting = 1,  // the keeper has started the ranks, none has reported ready
  kRunning = 2,
  kStandby = 3,  // a target's instance that waits in ckpt_ready
  kPaused = 4,   // held at a barrier by a switch
  kExited = 5,   // all ranks are gone; exit_code says how
  kMoved = 6,    // ended because another instance goes on elsewhere
};
[[nodiscard]] constexpr bool is_known(JobPhase p) {
  return p >= JobPhase::kStarting && p <= JobPhase::kMoved;
}
[[nodiscard]] std::string_view to_string(JobPhase phase) noexcept;

struct RankState {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  RankState() = default;
  std::uint32_t rank = 0;
  std::int32_t pid = 0;
  std::uint32_t gpu_index = 0;
  std::uint64_t state_bytes = 0;  // what a migration of this rank would move; 0 while unknown
  std::uint64_t device_bytes =
      0;  // what it holds as the driver counts, or state_bytes where the driver does not say
  template <class A>
  void fields(A& a) {
    a(rank, pid, gpu_index, state_bytes, device_bytes);
  }
};

// One running (or ended, until ForgetJob) instance of a job on one node.
struct JobInstance {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  JobInstance() = default;
  JobId job = 0;
  std::string name;
  Incarnation incarnation =
      0;  // the one it was started as, also after a switch gave it a higher right to run
  JobRole role = JobRole::kFresh;
  JobPhase phase = JobPhase::kStarting;
  std::int32_t exit_code = -1;  // with kExited: 0..255, 128 + signal
  bool movable = false;
  std::string reason;  // why it is not movable (empty: not known yet), or why it could not start
  std::int64_t started_unix_ms = 0;
  std::uint64_t log_bytes = 0;
  std::vector<RankState> ranks;
  template <class A>
  void fields(A& a) {
    a(job, name, incarnation, role, phase, exit_code, movable, reason, started_unix_ms, log_bytes, ranks);
  }
};

struct NodeInventory {
  static constexpr std::uint8_t kVersion = 3, kCompat = 1;
  NodeInventory() = default;
  std::string node;
  std::string peer_address;  // host:port where other agents reach this one
  std::vector<GpuInfo> gpus;
  std::vector<JobInstance> jobs;
  bool moves_processes = false;  // it can dump and restore host processes: transparent jobs may come and go
  std::string process_reason;    // why not
  std::string driver_version;    // of the GPU driver; empty: not known
  std::string rack;              // as its agent.toml says; empty: not said
  std::vector<std::string> labels;  // KEY=VALUE, likewise
  template <class A>
  void fields(A& a) {
    a(node, peer_address, gpus, jobs, moves_processes, process_reason, driver_version, rack, labels);
  }
};

struct AgentHello {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kAgentHello;
  AgentHello() = default;
  std::string software_version;
  NodeInventory inventory;
  template <class A>
  void fields(A& a) {
    a(software_version, inventory);
  }
};

struct Welcome {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kWelcome;
  Welcome() = default;
  std::int64_t lease_term_ns = 0;
  std::int64_t switch_timeout_ns = 0;
  std::string peer_token;  // hex; agents ask it of each other on the peer link
  template <class A>
  void fields(A& a) {
    a(lease_term_ns, switch_timeout_ns, peer_token);
  }
};

struct Inventory {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kInventory;
  Inventory() = default;
  NodeInventory inventory;
  template <class A>
  void fields(A& a) {
    a(inventory);
  }
};

// One instance changed. The same facts follow in the next Inventory, so a lost one does no harm.
struct JobChange {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kJobChange;
  JobChange() = default;
  JobInstance instance;
  template <class A>
  void fields(A& a) {
    a(instance);
  }
};

// ---- Jobs -------------------------------------------------------------------------------------------------------

struct RankSpec {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  RankSpec() = default;
  std::uint32_t rank = 0;
  std::uint32_t gpu_index = 0;
  template <class A>
  void fields(A& a) {
    a(rank, gpu_index);
  }
};

// How a job is moved (DESIGN §3).
enum class Way : std::uint8_t {
  kInvalid = 0,
  kCooperative = 1,
  kTransparent = 2,
  kAdopted = 3,  // a process that was running already: stop-and-copy, the driver saves its device memory
};
[[nodiscard]] constexpr bool is_known(Way way) {
  return way >= Way::kCooperative && way <= Way::kAdopted;
}
[[nodiscard]] constexpr std::string_view to_string(Way way) noexcept {
  if (way == Way::kAdopted) return "adopted";
  return way == Way::kTransparent ? "transparent" : "cooperative";
}

struct JobSpec {
  static constexpr std::uint8_t kVersion = 4, kCompat = 1;
  JobSpec() = default;
  JobId job = 0;
  std::string name;
  std::vector<std::string> argv;
  std::vector<std::string> env;  // KEY=VALUE
  std::string cwd;               // absolute
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  Incarnation incarnation = 0;
  std::uint64_t gpu_memory_bytes = 0;  // what the submitter asked for, 0 = nothing said
  std::vector<RankSpec> ranks;
  Way way = Way::kCooperative;
  // kAdopted: the process as its first node counts, and when it was started (field 22 of /proc/PID/stat), which names it for ever.
  std::int32_t adopt_pid = 0;
  std::uint64_t adopt_start_ticks = 0;
  std::int32_t priority = 0;  // the higher, the later it is disturbed
  template <class A>
  void fields(A& a) {
    a(job, name, argv, env, cwd, uid, gid, incarnation, gpu_memory_bytes, ranks, way, adopt_pid,
      adopt_start_ticks, priority);
  }
};

// The answer to StartJob (the keeper and its ranks have been started, or why not), StopJob (the signal is sent), SetLimits,
// ForgetJob, and to a ReadLog that failed.
struct Reply {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kReply;
  Reply() = default;
  std::uint64_t request_id = 0;
  bool ok = true;
  std::uint8_t error_code = 0;  // with ok = false: an ErrorCode
  std::string message;
  [[nodiscard]] Error to_error() const;  // an unknown code becomes kInternal
  template <class A>
  void fields(A& a) {
    a(request_id, ok, error_code, message);
  }
};

// Repeated with the same job and incarnation it is answered with the first one's outcome and starts nothing.
struct StartJob {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kStartJob;
  StartJob() = default;
  std::uint64_t request_id = 0;
  JobSpec spec;
  template <class A>
  void fields(A& a) {
    a(request_id, spec);
  }
};

// What `adopt` needs to know of a process before there is a job: answered with ProcessFacts, or with a Reply that says why it cannot be
// taken in.
struct InspectProcess {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kInspectProcess;
  InspectProcess() = default;
  std::uint64_t request_id = 0;
  std::int32_t pid = 0;
  std::string machine;            // boot id of the machine that counts so; empty: the node's own
  std::uint64_t start_ticks = 0;  // 0: whichever process has the id now
  template <class A>
  void fields(A& a) {
    a(request_id, pid, machine, start_ticks);
  }
};

struct ProcessFacts {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kProcessFacts;
  ProcessFacts() = default;
  std::uint64_t request_id = 0;
  std::uint64_t start_ticks = 0;
  std::vector<std::string> argv;
  std::string cwd;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t gpu_index = 0;
  std::uint64_t device_bytes = 0;
  template <class A>
  void fields(A& a) {
    a(request_id, start_ticks, argv, cwd, uid, gid, gpu_index, device_bytes);
  }
};

// SIGTERM, after the grace SIGKILL, to every instance of the job with this incarnation or a lower one.
struct StopJob {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kStopJob;
  StopJob() = default;
  std::uint64_t request_id = 0;
  JobId job = 0;
  Incarnation incarnation = 0;
  std::int64_t grace_ns = 0;
  template <class A>
  void fields(A& a) {
    a(request_id, job, incarnation, grace_ns);
  }
};

// The coordinator needs nothing of this job any more: the agent removes its folders (logs, status) of ended instances.
struct ForgetJob {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kForgetJob;
  ForgetJob() = default;
  std::uint64_t request_id = 0;
  JobId job = 0;
  template <class A>
  void fields(A& a) {
    a(request_id, job);
  }
};

struct ReadLog {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kReadLog;
  ReadLog() = default;
  std::uint64_t request_id = 0;
  JobId job = 0;
  Incarnation incarnation = 0;
  std::uint64_t offset = 0;
  std::uint32_t limit = 0;  // at most kMaxLogBytes
  std::int64_t follow_ns =
      0;  // with nothing at the offset yet: answer when there is, at the end, or after this
  template <class A>
  void fields(A& a) {
    a(request_id, job, incarnation, offset, limit, follow_ns);
  }
};
inline constexpr std::uint32_t kMaxLogBytes = 256 * 1024;

struct LogData {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kLogData;
  LogData() = default;
  std::uint64_t request_id = 0;
  std::uint64_t offset = 0;  // of the first byte of `bytes`
  std::string bytes;
  bool ended = false;  // the instance has ended and `bytes` reaches the end of its log
  template <class A>
  void fields(A& a) {
    a(request_id, offset, bytes, ended);
  }
};

// ---- Migrations -------------------------------------------------------------------------------------------------

enum class MigrateMode : std::uint8_t { kInvalid = 0, kLive = 1, kStopCopy = 2 };
enum class NotConverged : std::uint8_t { kInvalid = 0, kSwitch = 1, kAbort = 2 };
[[nodiscard]] constexpr bool is_known(MigrateMode m) {
  return m == MigrateMode::kLive || m == MigrateMode::kStopCopy;
}
[[nodiscard]] constexpr bool is_known(NotConverged n) {
  return n == NotConverged::kSwitch || n == NotConverged::kAbort;
}

// --codec, as the engine's codec::CodecMode.
enum class CodecMode : std::uint8_t { kInvalid = 0, kAuto = 1, kRaw = 2, kPlanes = 3, kDifference = 4 };
[[nodiscard]] constexpr bool is_known(CodecMode mode) {
  return mode >= CodecMode::kAuto && mode <= CodecMode::kDifference;
}

struct MigrateOptions {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  MigrateOptions() = default;
  MigrateMode mode = MigrateMode::kLive;
  NotConverged if_not_converged = NotConverged::kSwitch;
  std::int64_t max_downtime_ns = 0;
  std::uint64_t bandwidth_bytes_per_second = 0;  // 0 = unlimited
  std::uint32_t max_rounds = 0;                  // 0 = the engine's default
  CodecMode codec = CodecMode::kAuto;
  std::uint64_t shadow_memory_bytes = 0;  // host memory for the last sent versions, for differences
  std::uint32_t slowdown_permille = 0;    // share of the GPU's time that pre-copy may take; 0 = no limit
  template <class A>
  void fields(A& a) {
    a(mode, if_not_converged, max_downtime_ns, bandwidth_bytes_per_second, max_rounds, codec,
      shadow_memory_bytes, slowdown_permille);
  }
};

// The `plan` of the switch's Prepare, the same bytes for both sides. Kept by the agents (0600) as long as the migration
// is open: peer address and token are what a committed switch is finished with while the coordinator is away.
// spec is the running instance, as it was started: command, environment, the incarnation it was started as (the name of
// its folder) and its GPU indices. The standby is the same command with the incarnation base + 1 (base: SwitchMessage) and
// the GPU indices of target_ranks.
struct MigrationPlan {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  MigrationPlan() = default;
  JobSpec spec;
  std::vector<RankSpec> target_ranks;
  std::string source_node;
  std::string target_node;
  std::string source_peer_address;  // host:port of the node's peer listener
  std::string target_peer_address;
  std::string peer_token;  // hex; asked in Hello on the peer link
  Bytes
      fingerprint_key;  // 32 random bytes, fresh per migration; never over the data transport, never to the job
  Bytes session_token;  // 16 random bytes: pairs the two movers
  std::int64_t lease_term_ns = 0;
  std::int64_t switch_timeout_ns = 0;
  MigrateOptions options;
  template <class A>
  void fields(A& a) {
    a(spec, target_ranks, source_node, target_node, source_peer_address, target_peer_address, peer_token,
      fingerprint_key, session_token, lease_term_ns, switch_timeout_ns, options);
  }
};
// The same process goes on, with another GPU (DESIGN §3, hot card swap).
[[nodiscard]] inline bool is_swap(const MigrationPlan& plan) {
  return plan.spec.way != Way::kCooperative && plan.source_node == plan.target_node;
}
inline constexpr std::size_t kFingerprintKeyBytes = 32;
inline constexpr std::size_t kSessionTokenBytes = 16;
// Also refuses keys of a wrong size, no ranks, and different numbers of source and target ranks.
Result<MigrationPlan> decode_plan(std::span<const std::byte> bytes);

struct MigrationProgress {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kMigrationProgress;
  MigrationProgress() = default;
  MigrationId migration = 0;
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
  template <class A>
  void fields(A& a) {
    a(migration, round, done_bytes, total_bytes, state_bytes, sent_bytes, remaining_bytes,
      dirty_bytes_per_second, throughput_bytes_per_second, estimate_ns, eta_ns);
  }
};

// `migrate`'s limits while it runs; absent values are -1.
struct SetLimits {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kSetLimits;
  SetLimits() = default;
  std::uint64_t request_id = 0;
  MigrationId migration = 0;
  std::int64_t max_downtime_ns = -1;
  std::int64_t bandwidth_bytes_per_second = -1;
  template <class A>
  void fields(A& a) {
    a(request_id, migration, max_downtime_ns, bandwidth_bytes_per_second);
  }
};

// What the source measured. Points in time are 0 when they were not reached.
struct SourceReport {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kSourceReport;
  SourceReport() = default;
  MigrationId migration = 0;
  std::int64_t barrier_entered_ns = 0;  // the rank's clock, at the entry of ckpt_barrier
  std::int64_t paused_ns = 0;           // PAUSED has reached the mover
  std::int64_t last_ack_ns = 0;         // the last chunk of the final round is acknowledged
  std::int64_t clock_offset_ns = 0;     // target's clock minus source's clock
  std::uint32_t rounds = 0;             // the final one included
  std::uint64_t state_bytes = 0;
  std::uint64_t sent_bytes = 0;     // chunk payload before encoding
  std::uint64_t wire_bytes = 0;     // after encoding, headers included
  std::uint64_t dirty_bytes = 0;    // found changed and sent again after the first round, over all rounds
  std::uint64_t final_bytes = 0;    // found in the final round: what the pause had to send
  std::uint64_t context_bytes = 0;  // moved by the driver's own checkpoint
  std::uint64_t host_bytes = 0;
  std::uint64_t resent_chunks = 0;
  std::uint64_t link_bytes_per_second = 0;  // a plain stream, measured beside the rounds, or a faster round
  std::uint64_t scan_bytes_per_second = 0;  // a plain read of the memory
  std::int64_t scan_ns = 0;                 // of the final scan
  std::int64_t copy_ns = 0;                 // busy time of the final round's copies
  std::int64_t estimate_ns = 0;             // the last estimate before the barrier
  bool converged = false;
  // The transparent way; 0 in the other.
  std::int64_t context_saved_ns = 0;  // the thin context is checkpointed (from paused on)
  std::int64_t host_saved_ns = 0;     // the host process is dumped; 0 in a swap
  template <class A>
  void fields(A& a) {
    a(migration, barrier_entered_ns, paused_ns, last_ack_ns, clock_offset_ns, rounds, state_bytes, sent_bytes,
      wire_bytes, dirty_bytes, final_bytes, context_bytes, host_bytes, resent_chunks, link_bytes_per_second,
      scan_bytes_per_second, scan_ns, copy_ns, estimate_ns, converged, context_saved_ns, host_saved_ns);
  }
};

// What the target measured, on its own clock.
struct TargetReport {
  static constexpr std::uint8_t kVersion = 3, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kTargetReport;
  TargetReport() = default;
  MigrationId migration = 0;
  bool verified = false;
  std::int64_t verified_ns = 0;     // the roots were compared
  std::int64_t committed_ns = 0;    // COMMITTED is durable
  std::int64_t resume_sent_ns = 0;  // host state is on its way to the standby
  std::int64_t resumed_ns = 0;      // the rank's clock, as ckpt_ready returns
  std::uint64_t scan_bytes_per_second = 0;
  std::int64_t scan_ns = 0;
  // The transparent way; 0 in the other.
  std::int64_t host_restored_ns = 0;     // the process is there again; 0 in a swap
  std::int64_t context_restored_ns = 0;  // its context is on this GPU
  std::int64_t memory_filled_ns = 0;     // what it made itself has its content; 0: it took what had arrived
  template <class A>
  void fields(A& a) {
    a(migration, verified, verified_ns, committed_ns, resume_sent_ns, resumed_ns, scan_bytes_per_second,
      scan_ns, host_restored_ns, context_restored_ns, memory_filled_ns);
  }
};

// The frame of a message, as Connection::send wants it.
template <class M>
Result<std::vector<std::byte>> to_frame(const M& message, std::uint64_t sequence) {
  return make_frame(M::kFrame, sequence, encode(message));
}

}  // namespace ckpt::wire
