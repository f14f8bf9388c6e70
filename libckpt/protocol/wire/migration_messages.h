// SPDX-License-Identifier: Apache-2.0
// The options of a migration, its progress, and the measurements of its two sides. The protocol itself is in
// commit_messages.h. control_messages.h has the order and the rules of all these messages.
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

// The value of --codec, equal to the engine's codec::CodecMode.
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

// The differences that are allowed between a new program's tensors and host states and those of the running
// program. Missing: the new program lacks them, and their content is dropped. New: only the new program has
// them, and they stay as that program made them. Changed: type or shape differ, and both rules apply.
inline constexpr std::uint8_t kAllowMissing = 1, kAllowNew = 2, kAllowChanged = 4, kAllowAll = 7;

struct MigrateOptions {
  static constexpr std::uint8_t kVersion = 4, kCompat = 1;
  MigrateStrategy strategy = MigrateStrategy::kLive;
  NotConverged if_not_converged = NotConverged::kSwitch;
  std::int64_t max_downtime_ns = 0;
  std::uint64_t bandwidth_bytes_per_second = 0;  // the limit in bytes per second; 0 for unlimited
  std::uint32_t max_rounds = 0;                  // the maximum number of rounds; 0 for the engine's default
  CodecMode codec = CodecMode::kAuto;
  std::uint64_t shadow_memory_bytes = 0;  // the host memory for the versions that were sent last, from which
                                          // differences are computed
  std::uint32_t slowdown_permille = 0;  // the share of the GPU's time that pre-copy may take; 0 for no limit
  std::vector<std::string> new_argv;    // --exec: the program of the standby; if empty, the job's own program
  std::uint8_t allowed_differences = 0;  // the allowed differences, a combination of kAllow...; only with
                                         // new_argv
  Communicators communicators = Communicators::kOverlap;
  Connections connections = Connections::kRefuse;
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
      record::later("communicators", &T::communicators), record::later("connections", &T::connections));
}

// The `plan` of the handover's Prepare, the same bytes for both sides. Agents store it (mode 0600) while the
// migration is open, because they need the peer's address and token to finish a committed handover without
// the coordinator. `spec` describes the running instance as it was started: command, environment, its first
// incarnation (the name of its folder) and its GPU indices. The standby has the same command with the
// incarnation base + 1 (base: CommitMessage) and the GPU indices of target_ranks.
struct MigrationPlan {
  static constexpr std::uint8_t kVersion = 5, kCompat = 1;
  JobSpec spec;
  std::vector<RankSpec> target_ranks;
  std::string source_node;
  std::string target_node;
  std::string source_peer_address;  // host:port of the node's peer listener
  std::string target_peer_address;
  std::string peer_token;  // the token in hex digits, which Hello on the peer link must contain
  Bytes fingerprint_key;  // 32 random bytes, new for each migration; never sent over the data transport or to
                          // the job
  Bytes session_token;    // a token of 16 random bytes that pairs the two movers
  std::int64_t lease_term_ns = 0;
  std::int64_t handover_timeout_ns = 0;
  MigrateOptions options;
  std::optional<PauseFacts> last_pause;  // the job's last pause, as both sides measured it
  std::string network;      // the name of a network of both nodes (DataNetwork); if empty, each side's first
                            // network
  std::uint32_t paths = 1;  // the number of the network's addresses over which the lanes are
                            // distributed in turn
  std::int64_t communicators_ns = 0;  // the expected time to make communicators during the pause; 0 if it
                                      // is not known
  template <class A>
  decltype(auto) fields(A& a) {
    return a(spec, target_ranks, source_node, target_node, source_peer_address, target_peer_address,
             peer_token, fingerprint_key, session_token, lease_term_ns, handover_timeout_ns, options,
             last_pause, network, paths, communicators_ns);
  }
};
// Returns whether the same process continues on a different GPU (docs/design.md §3, hot card swap).
[[nodiscard]] inline bool is_swap(const MigrationPlan& plan) {
  return plan.spec.mode != MigrationMode::kCooperative && plan.source_node == plan.target_node;
}
inline constexpr std::size_t kFingerprintKeyBytes = 32;
inline constexpr std::size_t kSessionTokenBytes = 16;
// Decodes a plan. Also refuses keys of a wrong size, a plan without ranks, and different numbers of source
// and target ranks.
Result<MigrationPlan> decode_plan(std::span<const std::byte> bytes);

struct MigrationProgress {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kMigrationProgress;
  MigrationId migration = 0;
  std::uint32_t round = 0;        // the number of the round, with the final round counted, too; 0 before the
                                  // first round
  std::uint64_t done_bytes = 0;   // the completed bytes of this round
  std::uint64_t total_bytes = 0;  // the bytes of this round, as known now
  std::uint64_t state_bytes = 0;
  std::uint64_t sent_bytes = 0;  // the bytes sent over all rounds
  std::uint64_t remaining_bytes = 0;
  std::uint64_t dirty_bytes_per_second = 0;
  std::uint64_t throughput_bytes_per_second = 0;
  std::int64_t estimate_ns = 0;  // the estimated downtime for a handover at this moment
  std::int64_t eta_ns = 0;       // the estimated time until the handover; negative if it is not known
  std::uint64_t wire_bytes_per_second = 0;  // the recent rate, encoded and with headers; 0 if it is not known
                                            // yet
  template <class A>
  decltype(auto) fields(A& a) {
    return a(migration, round, done_bytes, total_bytes, state_bytes, sent_bytes, remaining_bytes,
             dirty_bytes_per_second, throughput_bytes_per_second, estimate_ns, eta_ns, wire_bytes_per_second);
  }
};

// The limits of `migrate` while it runs. An absent value is -1.
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

// A query: would the source begin to prepare a move of the job? Nothing is changed. The answer is Reply. If
// MoveNeeds was requested and the source would begin, the answer is MoveNeeds.
struct CheckMove {
  static constexpr std::uint8_t kVersion = 3, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kCheckMove;
  std::uint64_t request_id = 0;
  JobId job = 0;
  Incarnation incarnation = 0;
  bool leaves_node = false;
  bool requests_needs =
      false;  // whether MoveNeeds is requested; an older agent does not know this field and answers with
              // Reply
  Connections connections = Connections::kRefuse;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, job, incarnation, leaves_node, requests_needs, connections);
  }
};

// The requirements of a program on another node that would take it, as the program's current node finds them
// now. All fields are empty for a move that does not move the program's process.
struct MoveNeeds {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kMoveNeeds;
  std::uint64_t request_id = 0;
  Bytes files;                          // the list from the source's agent, which the target's agent compares
  std::uint64_t most_mappings = 0;      // the number of mappings of the process with the most mappings
  bool has_connections = false;         // whether the program has connections to itself
  std::uint64_t ended_connections = 0;  // the number of its connections to other programs, which end
  bool resets_connections = false;      // whether the move ends connections to other programs, including
                                        // connections made later
  bool has_own_namespaces = false;      // whether JobSpec::namespaces is kOwn
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, files, most_mappings, has_connections, ended_connections, resets_connections,
             has_own_namespaces);
  }
};

// A query: would a target accept the program that `spec` describes, as it would start there? Nothing is
// changed. The answer is Reply.
struct CheckTarget {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kCheckTarget;
  std::uint64_t request_id = 0;
  JobSpec spec;
  MoveNeeds needs;  // the needs that the source reported
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, spec, needs);
  }
};

// A check before the target is changed: can the source's mover reach the target's mover over a network of
// both? The check uses its own lane, which carries nothing. First the target is requested to listen, then the
// source to connect. The answer to each is the message below it, or a Reply with the reason. The addresses of
// a network are checked one after another.
struct ListenForCheck {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kListenForCheck;
  std::uint64_t request_id = 0;
  std::uint32_t gpu = 0;  // the GPU of the mover
  std::string network;
  Bytes session_token;     // the session's token, of kSessionTokenBytes bytes
  std::uint32_t path = 0;  // the index of the network's address, from 0
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
  std::string address;     // one of the addresses of ListensForCheck
  std::uint32_t path = 0;  // the index of this node's address to connect from
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, gpu, network, session_token, address, path);
  }
};
struct NodeReached {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kNodeReached;
  std::uint64_t request_id = 0;
  std::int64_t connect_ns = 0;  // the time from the first packet until the lane was open
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, connect_ns);
  }
};

// The source's measurements. A point in time is 0 if it was not reached.
struct SourceReport {
  static constexpr std::uint8_t kVersion = 6, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kSourceReport;
  MigrationId migration = 0;
  std::int64_t barrier_entered_ns = 0;  // the time on the rank's clock at which ckpt_barrier was entered
  std::int64_t paused_ns = 0;           // the time at which PAUSED reached the mover
  std::int64_t last_ack_ns = 0;      // the time at which the last chunk of the final round was acknowledged
  std::int64_t clock_offset_ns = 0;  // target's clock minus source's clock
  std::uint32_t rounds = 0;          // the number of rounds, including the final one
  std::uint64_t state_bytes = 0;
  std::uint64_t sent_bytes = 0;     // the chunk payload before encoding
  std::uint64_t wire_bytes = 0;     // the bytes after encoding, including headers
  std::uint64_t dirty_bytes = 0;    // the bytes that were found changed and sent again after the first round,
                                    // over all rounds
  std::uint64_t final_bytes = 0;    // the bytes found in the final round, which the pause had to send
  std::uint64_t context_bytes = 0;  // the bytes that the driver's own checkpoint moved
  std::uint64_t host_bytes = 0;     // the bytes of host state that were sent during the pause
  std::uint64_t resent_chunks = 0;
  std::uint64_t link_bytes_per_second = 0;  // the rate of a plain stream, measured alongside the rounds, or
                                            // of a faster round
  std::uint64_t scan_bytes_per_second = 0;  // the rate of a plain read of the memory
  std::int64_t scan_ns = 0;                 // the duration of the final scan
  std::int64_t copy_ns = 0;                 // the busy time of the final round's copies
  std::int64_t estimate_ns = 0;             // the last estimate before the barrier
  bool converged = false;
  // Times of transparent mode. They are 0 in cooperative mode.
  std::int64_t context_saved_ns = 0;   // the time at which the released context was checkpointed (counted
                                       // from paused_ns on)
  std::int64_t host_saved_ns = 0;      // the time at which the host process was dumped; 0 for a swap
  std::optional<PauseFacts> estimate;  // the terms of estimate_ns
  std::uint64_t host_read_bytes_per_second =
      0;  // the rate of reading host memory, measured alongside moves, or of a faster dump;
          // 0 if the rate is not known
  std::uint64_t host_ahead_bytes = 0;  // the bytes of host state that were sent before the pause
  std::int64_t stop_ordered_ns = 0;    // for a rank that moves with others: the time at which the rank was
                                       // ordered to stop at a barrier
  template <class A>
  decltype(auto) fields(A& a) {
    return a(migration, barrier_entered_ns, paused_ns, last_ack_ns, clock_offset_ns, rounds, state_bytes,
             sent_bytes, wire_bytes, dirty_bytes, final_bytes, context_bytes, host_bytes, resent_chunks,
             link_bytes_per_second, scan_bytes_per_second, scan_ns, copy_ns, estimate_ns, converged,
             context_saved_ns, host_saved_ns, estimate, host_read_bytes_per_second, host_ahead_bytes,
             stop_ordered_ns);
  }
};

// The target's measurements, on its own clock. The report is sent before the outcome. If host memory followed
// the running process, the report is sent again with memory_follows_ns.
struct TargetReport {
  // Version 8 adds the remarks.
  static constexpr std::uint8_t kVersion = 8, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kTargetReport;
  MigrationId migration = 0;
  bool verified = false;
  std::int64_t verified_ns = 0;     // the time at which the roots were compared
  std::int64_t committed_ns = 0;    // the time at which COMMITTED was durable
  std::int64_t resume_sent_ns = 0;  // the time at which the host state was sent to the standby
  std::int64_t resumed_ns = 0;      // the time on the rank's clock at which ckpt_ready returned
  std::uint64_t scan_bytes_per_second = 0;
  std::int64_t scan_ns = 0;
  // Times of transparent mode. They are 0 in cooperative mode.
  std::int64_t host_restored_ns = 0;     // the time at which the process was restored; 0 for a swap
  std::int64_t context_restored_ns = 0;  // the time at which the process's context was on this GPU
  std::int64_t memory_filled_ns = 0;     // the time at which memory that the process made itself had its
                                         // content; 0 if it used the memory that had arrived
  std::uint64_t host_write_bytes_per_second = 0;  // the rate of writing to fresh host memory; 0 if it is not
                                                  // known
  std::int64_t groups_ns = 0;       // the duration of making the rank's communicators; 0 if there were none
                                    // to make
  std::int64_t groups_made_ns = 0;  // the time at which communicators were made during the pause; 0 if they
                                    // were made before the pause
  std::uint64_t memory_follows_bytes = 0;  // the bytes of the process's memory that had not arrived when the
                                           // process continued
  std::int64_t memory_follows_ns = 0;      // the time from the continuation until all memory had arrived; 0
                                           // if it has not arrived yet, or if the time is not known
  std::vector<std::string> remarks;        // the differences between the restored program and the source's
  template <class A>
  decltype(auto) fields(A& a) {
    return a(migration, verified, verified_ns, committed_ns, resume_sent_ns, resumed_ns,
             scan_bytes_per_second, scan_ns, host_restored_ns, context_restored_ns, memory_filled_ns,
             host_write_bytes_per_second, groups_ns, groups_made_ns, memory_follows_bytes, memory_follows_ns,
             remarks);
  }
};

// A query for a node's facts about a handover that the coordinator does not know. The answer is
// HandoverFacts, or a Reply with the reason.
struct DescribeHandover {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kDescribeHandover;
  std::uint64_t request_id = 0;
  MigrationId migration = 0;
  Side side = Side::kSource;  // the side of this node
  bool of_ranks = false;      // whether this is a move of ranks, for which `side` has no meaning
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, migration, side, of_ranks);
  }
};

struct HandoverFacts {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kHandoverFacts;
  std::uint64_t request_id = 0;
  MigrationId migration = 0;
  JobId job = 0;
  Incarnation base = 0;
  std::vector<RankPlace> ranks;
  Bytes plan;  // an encoded MigrationPlan
  Bytes move;  // for a move of ranks, instead of job, base, ranks and plan: an encoded gang::GangInfo
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, migration, job, base, ranks, plan, move);
  }
};

}  // namespace ckpt::wire
