// SPDX-License-Identifier: Apache-2.0
// The options of a migration, its progress, and the measurements of its two sides. The protocol itself is in
// commit_messages.h; control_messages.h has the order and what holds for all of these messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libckpt/protocol/wire/codec.h"
#include "libckpt/protocol/wire/commit_messages.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/pause_terms.h"
#include "libckpt/record/names.h"

namespace ckpt::wire {

enum class MigrateStrategy : std::uint8_t { kInvalid = 0, kLive = 1, kStopCopy = 2 };
enum class NotConverged : std::uint8_t { kInvalid = 0, kSwitch = 1, kAbort = 2 };
[[nodiscard]] constexpr bool is_known(MigrateStrategy m) {
  return m == MigrateStrategy::kLive || m == MigrateStrategy::kStopCopy;
}
[[nodiscard]] constexpr bool is_known(NotConverged n) {
  return n == NotConverged::kSwitch || n == NotConverged::kAbort;
}
constexpr auto names_of(record::Of<MigrateStrategy>) {
  return record::names<MigrateStrategy>(
      {{MigrateStrategy::kLive, "live"}, {MigrateStrategy::kStopCopy, "stop-copy"}});
}
constexpr auto names_of(record::Of<NotConverged>) {
  return record::names<NotConverged>({{NotConverged::kSwitch, "switch"}, {NotConverged::kAbort, "abort"}});
}

// --codec, as the engine's codec::CodecMode.
enum class CodecMode : std::uint8_t { kInvalid = 0, kAuto = 1, kRaw = 2, kPlanes = 3, kDifference = 4 };
[[nodiscard]] constexpr bool is_known(CodecMode mode) {
  return mode >= CodecMode::kAuto && mode <= CodecMode::kDifference;
}
constexpr auto names_of(record::Of<CodecMode>) {
  return record::names<CodecMode>({{CodecMode::kAuto, "auto"},
                                   {CodecMode::kRaw, "raw"},
                                   {CodecMode::kPlanes, "planes"},
                                   {CodecMode::kDifference, "difference"}});
}

// How a new program's tensors and host states may differ from the running one's: what it has not (their content is
// dropped), what it has beside them (it stays as the new program made it), and what has another type or shape (both).
inline constexpr std::uint8_t kAllowMissing = 1, kAllowNew = 2, kAllowChanged = 4, kAllowAll = 7;

struct MigrateOptions {
  static constexpr std::uint8_t kVersion = 3, kCompat = 1;
  MigrateStrategy strategy = MigrateStrategy::kLive;
  NotConverged if_not_converged = NotConverged::kSwitch;
  std::int64_t max_downtime_ns = 0;
  std::uint64_t bandwidth_bytes_per_second = 0;  // 0 = unlimited
  std::uint32_t max_rounds = 0;                  // 0 = the engine's default
  CodecMode codec = CodecMode::kAuto;
  std::uint64_t shadow_memory_bytes = 0;  // host memory for the last sent versions, for differences
  std::uint32_t slowdown_permille = 0;    // share of the GPU's time that pre-copy may take; 0 = no limit
  std::vector<std::string> new_argv;      // --exec: the standby is this program; empty: the job's own
  std::uint8_t allowed_differences = 0;   // kAllow...; only with new_argv
  Communicators communicators = Communicators::kOverlap;
};
template <std::same_as<MigrateOptions> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::field("mode", &T::strategy), record::field("if_not_converged", &T::if_not_converged),
      record::field("max_downtime_ns", &T::max_downtime_ns),
      record::field("bandwidth", &T::bandwidth_bytes_per_second), record::field("max_rounds", &T::max_rounds),
      record::later("codec", &T::codec), record::later("shadow_memory_bytes", &T::shadow_memory_bytes),
      record::later("slowdown_permille", &T::slowdown_permille), record::later("new_argv", &T::new_argv),
      record::later("allowed_differences", &T::allowed_differences),
      record::later("communicators", &T::communicators));
}

// The `plan` of the switch's Prepare, the same bytes for both sides. Kept by the agents (0600) as long as the
// migration is open: peer address and token are what a committed switch is finished with while the
// coordinator is away. spec is the running instance, as it was started: command, environment, the incarnation
// it was started as (the name of its folder) and its GPU indices. The standby is the same command with the
// incarnation base + 1 (base: CommitMessage) and the GPU indices of target_ranks.
struct MigrationPlan {
  static constexpr std::uint8_t kVersion = 5, kCompat = 1;
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
  std::optional<PauseFacts> last_pause;  // of the job, as both sides measured it
  std::string network;                   // of both nodes (DataNetwork); empty: each side's first one
  std::uint32_t paths = 1;               // its lanes go over so many of that network's addresses in turn
  std::int64_t communicators_ns = 0;     // what making them in the pause is expected to take; 0: not known
  template <class A>
  decltype(auto) fields(A& a) {
    return a(spec, target_ranks, source_node, target_node, source_peer_address, target_peer_address,
             peer_token, fingerprint_key, session_token, lease_term_ns, switch_timeout_ns, options,
             last_pause, network, paths, communicators_ns);
  }
};
// The same process goes on, with another GPU (docs/design.md §3, hot card swap).
[[nodiscard]] inline bool is_swap(const MigrationPlan& plan) {
  return plan.spec.mode != MigrationMode::kCooperative && plan.source_node == plan.target_node;
}
inline constexpr std::size_t kFingerprintKeyBytes = 32;
inline constexpr std::size_t kSessionTokenBytes = 16;
// Also refuses keys of a wrong size, no ranks, and different numbers of source and target ranks.
Result<MigrationPlan> decode_plan(std::span<const std::byte> bytes);

struct MigrationProgress {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kMigrationProgress;
  MigrationId migration = 0;
  std::uint32_t round = 0;        // 0 before the first, the final one counts too
  std::uint64_t done_bytes = 0;   // of this round
  std::uint64_t total_bytes = 0;  // of this round, as known now
  std::uint64_t state_bytes = 0;
  std::uint64_t sent_bytes = 0;  // over all rounds
  std::uint64_t remaining_bytes = 0;
  std::uint64_t dirty_bytes_per_second = 0;
  std::uint64_t throughput_bytes_per_second = 0;
  std::int64_t estimate_ns = 0;             // of the downtime, if the switch came now
  std::int64_t eta_ns = 0;                  // until the switch, as estimated now; negative = not known
  std::uint64_t wire_bytes_per_second = 0;  // lately, encoded and with headers; 0 = not known yet
  template <class A>
  decltype(auto) fields(A& a) {
    return a(migration, round, done_bytes, total_bytes, state_bytes, sent_bytes, remaining_bytes,
             dirty_bytes_per_second, throughput_bytes_per_second, estimate_ns, eta_ns, wire_bytes_per_second);
  }
};

// `migrate`'s limits while it runs; absent values are -1.
struct SetLimits {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kSetLimits;
  std::uint64_t request_id = 0;
  MigrationId migration = 0;
  std::int64_t max_downtime_ns = -1;
  std::int64_t bandwidth_bytes_per_second = -1;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, migration, max_downtime_ns, bandwidth_bytes_per_second);
  }
};

// Whether the source would begin to prepare a move of the job. Nothing is touched. Answered with Reply, or with
// MoveNeeds where it is asked for them and would begin.
struct CheckMove {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kCheckMove;
  std::uint64_t request_id = 0;
  JobId job = 0;
  Incarnation incarnation = 0;
  bool leaves_node = false;
  bool tells_needs = false;  // an older agent does not know it, and answers with Reply
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, job, incarnation, leaves_node, tells_needs);
  }
};

// The things that a program needs of another node, as its own node finds them now. All are empty for a move that takes
// no program along.
struct MoveNeeds {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kMoveNeeds;
  std::uint64_t request_id = 0;
  Bytes files;                      // the list of the source's agent, which that of the target compares
  std::uint64_t most_mappings = 0;  // of one process
  bool has_connections = false;     // of the program to itself
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, files, most_mappings, has_connections);
  }
};

// Whether a target would take the program that the spec describes, as it would start there. Nothing is touched.
// Answered with Reply.
struct CheckTarget {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kCheckTarget;
  std::uint64_t request_id = 0;
  JobSpec spec;
  MoveNeeds needs;  // of the source
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, spec, needs);
  }
};

// Before the target is touched: whether the source's mover reaches the target's over a network of both, by a
// lane of its own that carries nothing. The target is asked to listen, then the source to connect. Each is
// answered with the message below it, or with a Reply that gives the reason. A network with several addresses
// is asked about one after the other.
struct ListenForCheck {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kListenForCheck;
  std::uint64_t request_id = 0;
  std::uint32_t gpu = 0;  // whose mover
  std::string network;
  Bytes session_token;     // kSessionTokenBytes
  std::uint32_t path = 0;  // which of the network's addresses, from 0
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, gpu, network, session_token, path);
  }
};
struct ListensForCheck {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kListensForCheck;
  std::uint64_t request_id = 0;
  std::string address;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, address);
  }
};
struct ReachNode {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kReachNode;
  std::uint64_t request_id = 0;
  std::uint32_t gpu = 0;
  std::string network;
  Bytes session_token;
  std::string address;     // of ListensForCheck
  std::uint32_t path = 0;  // from which of its own addresses
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, gpu, network, session_token, address, path);
  }
};
struct NodeReached {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kNodeReached;
  std::uint64_t request_id = 0;
  std::int64_t connect_ns = 0;  // from the first packet until the lane was open
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, connect_ns);
  }
};

// The source's measurements. Points in time are 0 if they were not reached.
struct SourceReport {
  static constexpr std::uint8_t kVersion = 6, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kSourceReport;
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
  std::uint64_t host_bytes = 0;     // sent in the pause
  std::uint64_t resent_chunks = 0;
  std::uint64_t link_bytes_per_second = 0;  // a plain stream, measured beside the rounds, or a faster round
  std::uint64_t scan_bytes_per_second = 0;  // a plain read of the memory
  std::int64_t scan_ns = 0;                 // of the final scan
  std::int64_t copy_ns = 0;                 // busy time of the final round's copies
  std::int64_t estimate_ns = 0;             // the last estimate before the barrier
  bool converged = false;
  // Transparent mode; 0 in the other.
  std::int64_t context_saved_ns = 0;   // the thin context is checkpointed (from paused on)
  std::int64_t host_saved_ns = 0;      // the host process is dumped; 0 in a swap
  std::optional<PauseFacts> estimate;  // estimate_ns by term
  std::uint64_t host_read_bytes_per_second =
      0;  // of host memory, measured beside moves, or a faster dump; 0: not known
  std::uint64_t host_ahead_bytes = 0;  // of the host state, sent before the pause
  std::int64_t stop_ordered_ns = 0;    // of a rank that moves with others: when it was told where to stop
  template <class A>
  decltype(auto) fields(A& a) {
    return a(migration, barrier_entered_ns, paused_ns, last_ack_ns, clock_offset_ns, rounds, state_bytes,
             sent_bytes, wire_bytes, dirty_bytes, final_bytes, context_bytes, host_bytes, resent_chunks,
             link_bytes_per_second, scan_bytes_per_second, scan_ns, copy_ns, estimate_ns, converged,
             context_saved_ns, host_saved_ns, estimate, host_read_bytes_per_second, host_ahead_bytes,
             stop_ordered_ns);
  }
};

// The target's measurements, on its own clock. Sent before the outcome, and where host memory followed the
// running process once more, with memory_follows_ns.
struct TargetReport {
  static constexpr std::uint8_t kVersion = 7, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kTargetReport;
  MigrationId migration = 0;
  bool verified = false;
  std::int64_t verified_ns = 0;     // the roots were compared
  std::int64_t committed_ns = 0;    // COMMITTED is durable
  std::int64_t resume_sent_ns = 0;  // host state is on its way to the standby
  std::int64_t resumed_ns = 0;      // the rank's clock, as ckpt_ready returns
  std::uint64_t scan_bytes_per_second = 0;
  std::int64_t scan_ns = 0;
  // Transparent mode; 0 in the other.
  std::int64_t host_restored_ns = 0;     // the process is there again; 0 in a swap
  std::int64_t context_restored_ns = 0;  // its context is on this GPU
  std::int64_t memory_filled_ns = 0;     // what it made itself has its content; 0: it took what had arrived
  std::uint64_t host_write_bytes_per_second = 0;  // of fresh host memory, likewise
  std::int64_t groups_ns = 0;                     // making its communicators; 0: it had none to make
  std::int64_t groups_made_ns = 0;                // in the pause: they are made; 0: they were before it
  std::uint64_t memory_follows_bytes = 0;         // of the process, that were not there when it went on
  std::int64_t memory_follows_ns = 0;             // from then until they were; 0: not yet, or not known
  template <class A>
  decltype(auto) fields(A& a) {
    return a(migration, verified, verified_ns, committed_ns, resume_sent_ns, resumed_ns,
             scan_bytes_per_second, scan_ns, host_restored_ns, context_restored_ns, memory_filled_ns,
             host_write_bytes_per_second, groups_ns, groups_made_ns, memory_follows_bytes, memory_follows_ns);
  }
};

// Asks a node for its facts of a switch that the coordinator does not know. Answered with SwitchFacts, or
// with a Reply that has the reason.
struct DescribeSwitch {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kDescribeSwitch;
  std::uint64_t request_id = 0;
  MigrationId migration = 0;
  Side side = Side::kSource;  // as which the node takes part
  bool of_ranks = false;      // a move of ranks; `side` means nothing then
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, migration, side, of_ranks);
  }
};

struct SwitchFacts {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kSwitchFacts;
  std::uint64_t request_id = 0;
  MigrationId migration = 0;
  JobId job = 0;
  Incarnation base = 0;
  std::vector<RankPlace> ranks;
  Bytes plan;  // an encoded MigrationPlan
  Bytes move;  // of a move of ranks instead of job, base, ranks and plan: an encoded gang::GangInfo
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, migration, job, base, ranks, plan, move);
  }
};

}  // namespace ckpt::wire
