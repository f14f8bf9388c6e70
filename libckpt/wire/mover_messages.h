// SPDX-License-Identifier: Apache-2.0
// Agent <-> mover: one message per packet of an inherited AF_UNIX SOCK_SEQPACKET socketpair (descriptor 3 in the mover).
//
// A session is one rank of one migration on one GPU; its key is in every message, several may be open. Agent A, source mover
// S, target mover T:
//
//   A>S,T Configure                        S,T>A MoverReady, or MoverFailed (the mover ends)
//   A>S,T OpenSession                      (no answer; opening one that is open is SessionFailed)
//   A>S,T AttachRegions +fds (<= 64)       S,T>A Attached: imported and mapped; the agent may close its copies. Next batch after it
//   A>S,T AttachTensors (<= 96)            (no answer)
//   A>T   StartTarget                      T>A Listening{addresses}
//                                          T>A MadeRegions +fds (<= 64), if it was told to make the memory: once the source's plan is there
//   A>S   StartSource{addresses}           S>A PlanAccepted or SessionFailed (kRefused names the tensor); T>A the same
//                                          S>A Progress (<= 10 a second), FirstRoundDone (stop-copy: at once),
//                                              Converged or DidNotConverge (abort wanted: the session waits for EndSession)
//         S keeps the target fresh after Converged until FinalRound comes.
//   A>S   HostRoom +memory file fd         behind StartSource, where host state is sent while it is made: the file it will fill from its front
//   A>S   FinalRound +host state fd        the rank is paused. S>A FinalSent: every chunk is acknowledged
//   A>S   HostGrew                         after HostRoom and a FinalRound that says so: how far; the last one says that it is whole
//   A>S   ReleaseManifest                  BARRIER is durable. May come before FinalSent; the manifest leaves after both
//                                          T>A Verified +host state fd;  S>A FinalDone
//   A>S   MoverLimits, at any time
//   A>S   AttachRegions, AttachTensors, DropTensors while rounds run: the job named or allocated; DropRegions: it freed.
//         S>A Dropped follows once nothing of the region is mapped here any more, at once also in a round.
//         T>A DroppedRegions, in a target that makes the memory: the job freed what MadeRegions told of. A>T RegionsLetGo once no process of the agent's has
//         them any more: a region that finds no memory waits for that.
//   A>S,T FillRegions +fds             no session's: a process has made memory of its own, each region is copied into it and compared. S,T>A Filled, FillFailed
//
// A snapshot is a source without a target, a restore a target without a source; what would be sent lies in a vault (libckpt/image/vault).
//   A>S   StartSnapshot +record fd         S>A SnapshotReady: what has changed since the last one is staged, while the job runs
//   A>S   FinalRound (no host state)       the rank is paused. S>A SnapshotStaged: it may go on
//                                          S>A DroppedRegions (none named): S holds nothing of its memory any more
//   A>S   SnapshotHost +host state fd      before or behind SnapshotStaged. S>A SnapshotDone: durable
//   A>T   StartRestore                     T>A MadeRegions +fds (and DroppedRegions, where a damaged version was begun), as above
//                                          T>A RestoreDone +host state fd: memory has its content, by fingerprints of what was written
//   A>S,T EndSession, at any time          S,T>A SessionEnded: nothing of the job is held any more. Also after SessionFailed
//   S,T>A SessionFailed                    the session does nothing more; EndSession must still follow. S lets go of nothing before it
//
// A mover that loses its agent (end of file) ends and holds nothing. A message for a session that is not open is answered with
// SessionEnded (EndSession, DropRegions: Dropped) or ignored.
//
// Threads: values and pure functions. Times are CLOCK_BOOTTIME nanoseconds of the node of who states them, 0 = not reached;
// sizes bytes, rates bytes per second. Errors: kProtocol for bytes that are no message; everything is bounded by a packet.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"
#include "libckpt/wire/codec.h"
#include "libckpt/wire/control_messages.h"
#include "libckpt/wire/switch_messages.h"
#include "libckpt/wire/tensor.h"

namespace ckpt::wire::mover {

inline constexpr int kSocketFd = 3;
inline constexpr std::size_t kMostPacketBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMostRegions = 64;  // of one AttachRegions or MadeRegions: one descriptor each
inline constexpr std::size_t kMostFillRegions = 32;  // of one FillRegions: two descriptors each
// FillRegions and its answers belong to no session: their key has this in place of a rank, and a number of the agent's own.
inline constexpr std::uint32_t kFillRank = 0xffff'ffff;
// The key of a snapshot's or restore's session has this in place of a rank, and a number of the agent's own.
inline constexpr std::uint32_t kVaultRank = 0xffff'fffe;
inline constexpr std::size_t kMostTensors = 96;  // of one AttachTensors
inline constexpr std::size_t kMostLanes = 8;

#define CKPT_MOVER_MESSAGE(Name)                           \
  static constexpr std::uint8_t kVersion = 1, kCompat = 1; \
  static constexpr std::string_view kName = #Name;         \
  Name() = default

struct SessionKey {
  CKPT_MOVER_MESSAGE(SessionKey);
  SessionKey(MigrationId m, std::uint32_t r) : migration(m), rank(r) {}
  MigrationId migration = 0;
  std::uint32_t rank = 0;
  template <class A>
  void fields(A& a) {
    a(migration, rank);
  }
  friend auto operator<=>(const SessionKey&, const SessionKey&) = default;
};

struct Failure {
  CKPT_MOVER_MESSAGE(Failure);
  explicit Failure(const Error& error) : code(error.code()), text(error.to_string()) {}
  [[nodiscard]] Error to_error() const { return {code, text}; }
  ErrorCode code = ErrorCode::kInternal;
  std::string text;
  template <class A>
  void fields(A& a) {
    a(code, text);
  }
};

// ---- agent -> mover ---------------------------------------------------------------------------------------------

struct Configure {
  CKPT_MOVER_MESSAGE(Configure);
  std::string node;
  std::uint32_t gpu = 0;  // the driver's ordinal
  std::string listen_ip = "127.0.0.1";
  std::string net_device;          // UCX_NET_DEVICES; empty: the device that has listen_ip
  std::string transports = "tcp";  // UCX_TLS
  std::uint64_t staging_bytes = std::uint64_t{128} << 20;  // pinned, made now; at most 256 MiB
  std::uint64_t chunk_bytes =
      0;  // of new sessions at the source, a power of two, 64 KiB-2 MiB; 0 = the default
  template <class A>
  void fields(A& a) {
    a(node, gpu, listen_ip, net_device, transports, staging_bytes, chunk_bytes);
  }
};

enum class Purpose : std::uint8_t { kInvalid = 0, kMove = 1, kSnapshot = 2, kRestore = 3 };
[[nodiscard]] constexpr bool is_known(Purpose p) {
  return p >= Purpose::kMove && p <= Purpose::kRestore;
}

struct OpenSession {
  CKPT_MOVER_MESSAGE(OpenSession);
  SessionKey session;
  Side side = Side::kInvalid;
  Incarnation incarnation = 0;  // the target's, the same on both sides
  Bytes fingerprint_key;        // kFingerprintKeyBytes
  Bytes session_token;          // kSessionTokenBytes
  // Target: there is no standby whose memory would be attached. The mover makes a region for each of the source's plan, with the same id, and
  // exports it (MadeRegions).
  bool makes_memory = false;
  Purpose purpose = Purpose::kMove;  // a snapshot is a source, a restore a target
  template <class A>
  void fields(A& a) {
    a(session, side, incarnation, fingerprint_key, session_token, makes_memory, purpose);
  }
};

struct RegionInfo {
  CKPT_MOVER_MESSAGE(RegionInfo);
  RegionInfo(std::uint64_t region_id, std::uint64_t region_generation, std::uint64_t region_bytes)
      : id(region_id), generation(region_generation), bytes(region_bytes) {}
  std::uint64_t id = 0;
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
  template <class A>
  void fields(A& a) {
    a(id, generation, bytes);
  }
};

struct AttachRegions {  // one descriptor per region, in order
  CKPT_MOVER_MESSAGE(AttachRegions);
  SessionKey session;
  std::uint64_t batch = 0;  // repeated in Attached
  std::vector<RegionInfo> regions;
  template <class A>
  void fields(A& a) {
    a(session, batch, regions);
  }
};

struct AttachTensors {
  CKPT_MOVER_MESSAGE(AttachTensors);
  SessionKey session;
  std::vector<TensorInfo> tensors;
  template <class A>
  void fields(A& a) {
    a(session, tensors);
  }
};

struct DropTensors {
  CKPT_MOVER_MESSAGE(DropTensors);
  SessionKey session;
  std::vector<std::string> names;
  template <class A>
  void fields(A& a) {
    a(session, names);
  }
};

struct DropRegions {
  CKPT_MOVER_MESSAGE(DropRegions);
  SessionKey session;
  std::vector<std::uint64_t> regions;
  template <class A>
  void fields(A& a) {
    a(session, regions);
  }
};

struct StartTarget {
  CKPT_MOVER_MESSAGE(StartTarget);
  SessionKey session;
  std::uint32_t lanes = 0;  // 0 = the default, which Listening tells by its addresses
  template <class A>
  void fields(A& a) {
    a(session, lanes);
  }
};

struct StartSource {
  CKPT_MOVER_MESSAGE(StartSource);
  SessionKey session;
  std::vector<std::string> addresses;  // of Listening
  MigrateOptions options;
  std::int64_t fixed_cost_ns =
      0;              // quiesce + commit + resume as the agent expects them, part of the estimate
  bool near = false;  // the target's mover is on this node: it may read this one's memory
  template <class A>
  void fields(A& a) {
    a(session, addresses, options, fixed_cost_ns, near);
  }
};

struct MoverLimits {  // absent values are -1; bandwidth 0 = unlimited
  CKPT_MOVER_MESSAGE(MoverLimits);
  SessionKey session;
  std::int64_t max_downtime_ns = -1;
  std::int64_t bandwidth_bytes_per_second = -1;
  template <class A>
  void fields(A& a) {
    a(session, max_downtime_ns, bandwidth_bytes_per_second);
  }
};

struct FinalRound {  // one descriptor: host state (none if host_state_bytes is 0)
  CKPT_MOVER_MESSAGE(FinalRound);
  SessionKey session;
  Nanos barrier_entered_ns = 0;  // the rank's
  Nanos paused_ns = 0;
  std::uint64_t host_state_bytes = 0;
  bool host_state_grows = false;  // it is what HostRoom gave, as far as HostGrew says
  template <class A>
  void fields(A& a) {
    a(session, barrier_entered_ns, paused_ns, host_state_bytes, host_state_grows);
  }
};

struct HostRoom {  // one descriptor: a memory file of `most` bytes that cannot shrink
  CKPT_MOVER_MESSAGE(HostRoom);
  SessionKey session;
  std::uint64_t most = 0;
  std::uint64_t expected = 0;
  template <class A>
  void fields(A& a) {
    a(session, most, expected);
  }
};

struct HostGrew {
  CKPT_MOVER_MESSAGE(HostGrew);
  SessionKey session;
  std::uint64_t filled = 0;
  bool whole = false;
  template <class A>
  void fields(A& a) {
    a(session, filled, whole);
  }
};

struct ReleaseManifest {
  CKPT_MOVER_MESSAGE(ReleaseManifest);
  SessionKey session;
  template <class A>
  void fields(A& a) {
    a(session);
  }
};

struct EndSession {
  CKPT_MOVER_MESSAGE(EndSession);
  SessionKey session;
  std::string reason;  // why, if not because the migration is over; the other side's mover is told
  template <class A>
  void fields(A& a) {
    a(session, reason);
  }
};

struct RegionsLetGo {
  CKPT_MOVER_MESSAGE(RegionsLetGo);
  SessionKey session;
  std::uint64_t regions = 0;  // how many, since the session began
  template <class A>
  void fields(A& a) {
    a(session, regions);
  }
};

struct FillRegions {  // two descriptors per region, in order: what has its content, what is to have it
  CKPT_MOVER_MESSAGE(FillRegions);
  SessionKey session;       // its rank is kFillRank
  std::uint64_t batch = 0;  // repeated in the answer
  std::vector<RegionInfo> regions;
  template <class A>
  void fields(A& a) {
    a(session, batch, regions);
  }
};

// The way to a vault beside its folder: a tier in memory before it, or the node that has it (libckpt/image/peer).
struct VaultWay {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  VaultWay() = default;
  std::string memory;  // a folder; empty: none
  std::uint64_t memory_limit_bytes = 0;
  std::string peer_address;  // empty: the folder is here
  std::vector<std::byte> peer_token;
  template <class A>
  void fields(A& a) {
    a(memory, memory_limit_bytes, peer_address, peer_token);
  }
};

struct StartSnapshot {  // one descriptor: an encoded image::StoredJob, whose plan the mover adds
  CKPT_MOVER_MESSAGE(StartSnapshot);
  SessionKey session;
  std::string folder;  // of the vault
  std::string vault_job;
  std::uint32_t keep = 1;
  std::uint64_t staging_bytes = 0;      // host memory for what has changed; 0: half of what the node has left
  std::uint64_t vault_limit_bytes = 0;  // 0: none
  std::uint32_t slowdown_permille = 0;  // as MigrateOptions
  bool full = false;                    // nothing is kept of the version before
  std::uint64_t record_bytes = 0;
  VaultWay way;
  template <class A>
  void fields(A& a) {
    a(session, folder, vault_job, keep, staging_bytes, vault_limit_bytes, slowdown_permille, full,
      record_bytes, way);
  }
};

struct SnapshotHost {  // one descriptor: host state (none if host_state_bytes is 0)
  CKPT_MOVER_MESSAGE(SnapshotHost);
  SessionKey session;
  std::uint64_t host_state_bytes = 0;
  template <class A>
  void fields(A& a) {
    a(session, host_state_bytes);
  }
};

struct StartRestore {
  CKPT_MOVER_MESSAGE(StartRestore);
  SessionKey session;
  std::string folder;
  std::string vault_job;
  std::uint64_t version = 0;  // 0: the newest that is whole
  VaultWay way;
  template <class A>
  void fields(A& a) {
    a(session, folder, vault_job, version, way);
  }
};

// ---- mover -> agent ---------------------------------------------------------------------------------------------

struct MoverReady {
  CKPT_MOVER_MESSAGE(MoverReady);
  std::string device_name;
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;  // after the mover has taken its own
  template <class A>
  void fields(A& a) {
    a(device_name, memory_bytes, free_bytes);
  }
};

struct MoverFailed {
  CKPT_MOVER_MESSAGE(MoverFailed);
  Failure failure;
  template <class A>
  void fields(A& a) {
    a(failure);
  }
};

struct Attached {
  CKPT_MOVER_MESSAGE(Attached);
  SessionKey session;
  std::uint64_t batch = 0;
  template <class A>
  void fields(A& a) {
    a(session, batch);
  }
};

struct Listening {
  CKPT_MOVER_MESSAGE(Listening);
  SessionKey session;
  std::vector<std::string> addresses;
  template <class A>
  void fields(A& a) {
    a(session, addresses);
  }
};

// Each source tensor has its place at the target.
struct PlanAccepted {
  CKPT_MOVER_MESSAGE(PlanAccepted);
  SessionKey session;
  std::uint64_t state_bytes = 0;  // tied and contained tensors counted once
  std::uint64_t tensors = 0;
  template <class A>
  void fields(A& a) {
    a(session, state_bytes, tensors);
  }
};

struct Progress {
  CKPT_MOVER_MESSAGE(Progress);
  SessionKey session;
  std::uint32_t round = 0;
  std::uint64_t done_bytes = 0;   // of this round
  std::uint64_t total_bytes = 0;  // of this round, as known now
  std::uint64_t state_bytes = 0;
  std::uint64_t sent_bytes = 0;  // over all rounds
  std::uint64_t remaining_bytes = 0;
  std::uint64_t dirty_bytes_per_second = 0;
  std::uint64_t throughput_bytes_per_second = 0;
  std::int64_t estimate_ns = 0;  // of the downtime, if the switch came now
  std::int64_t eta_ns = -1;      // until the switch; negative = not known
  template <class A>
  void fields(A& a) {
    a(session, round, done_bytes, total_bytes, state_bytes, sent_bytes, remaining_bytes,
      dirty_bytes_per_second, throughput_bytes_per_second, estimate_ns, eta_ns);
  }
};

struct FirstRoundDone {
  CKPT_MOVER_MESSAGE(FirstRoundDone);
  SessionKey session;
  template <class A>
  void fields(A& a) {
    a(session);
  }
};

// The time to switch. `within_limit` false: rounds do not shrink (or max_rounds is reached) and the options say switch.
struct Converged {
  CKPT_MOVER_MESSAGE(Converged);
  SessionKey session;
  std::uint32_t rounds = 0;
  std::int64_t estimate_ns = 0;
  bool within_limit = false;
  template <class A>
  void fields(A& a) {
    a(session, rounds, estimate_ns, within_limit);
  }
};

// Rounds do not shrink (or max_rounds is reached) and the options say abort.
struct DidNotConverge {
  CKPT_MOVER_MESSAGE(DidNotConverge);
  SessionKey session;
  std::uint32_t rounds = 0;
  std::int64_t estimate_ns = 0;
  std::string reason;
  template <class A>
  void fields(A& a) {
    a(session, rounds, estimate_ns, reason);
  }
};

// The source's measurements; those of the final round are 0 before it.
struct SourceCounters {
  CKPT_MOVER_MESSAGE(SourceCounters);
  std::uint32_t rounds = 0;  // the final one included
  std::uint64_t state_bytes = 0;
  std::uint64_t sent_bytes = 0;   // chunks before encoding
  std::uint64_t wire_bytes = 0;   // after encoding, headers included
  std::uint64_t dirty_bytes = 0;  // found changed and sent again after the first round, over all rounds
  std::uint64_t final_bytes = 0;  // found in the final round
  std::uint64_t host_bytes = 0;
  std::uint64_t resent_chunks = 0;          // after a mismatch of fingerprints
  std::uint64_t link_bytes_per_second = 0;  // a plain stream over the same lanes, or a round that was faster
  std::uint64_t scan_bytes_per_second = 0;  // the fastest full scan of this session
  std::int64_t scan_ns = 0;                 // final scan
  std::int64_t copy_ns = 0;                 // final round: from the first copy to the last acknowledgement
  std::int64_t estimate_ns = 0;             // the last one before the barrier
  std::int64_t clock_offset_ns = 0;         // target's clock minus ours
  std::int64_t clock_uncertainty_ns = 0;    // half the fastest round trip
  template <class A>
  void fields(A& a) {
    a(rounds, state_bytes, sent_bytes, wire_bytes, dirty_bytes, final_bytes, host_bytes, resent_chunks,
      link_bytes_per_second, scan_bytes_per_second, scan_ns, copy_ns, estimate_ns, clock_offset_ns,
      clock_uncertainty_ns);
  }
};

struct FinalSent {
  CKPT_MOVER_MESSAGE(FinalSent);
  SessionKey session;
  Nanos final_received_ns = 0;  // FinalRound reached the mover: quiesce ends
  Nanos scan_begin_ns = 0;
  Nanos scan_end_ns = 0;
  Nanos last_ack_ns = 0;  // final ends
  SourceCounters counters;
  template <class A>
  void fields(A& a) {
    a(session, final_received_ns, scan_begin_ns, scan_end_ns, last_ack_ns, counters);
  }
};

// The target has verified and said so; from now on the source's mover has nothing to do but to hold.
struct FinalDone {
  CKPT_MOVER_MESSAGE(FinalDone);
  SessionKey session;
  Nanos final_received_ns = 0;
  Nanos scan_begin_ns = 0;
  Nanos scan_end_ns = 0;
  Nanos last_ack_ns = 0;
  Nanos manifest_sent_ns = 0;
  Nanos verified_heard_ns = 0;
  SourceCounters counters;  // with the second measurement of the clocks
  template <class A>
  void fields(A& a) {
    a(session, final_received_ns, scan_begin_ns, scan_end_ns, last_ack_ns, manifest_sent_ns,
      verified_heard_ns, counters);
  }
};

struct Verified {  // one descriptor: host state, sealed (none if host_state_bytes is 0)
  CKPT_MOVER_MESSAGE(Verified);
  SessionKey session;
  std::uint64_t host_state_bytes = 0;
  std::string root;  // hex
  Nanos final_heard_ns = 0;
  Nanos scan_begin_ns = 0;
  Nanos scan_end_ns = 0;
  Nanos last_chunk_ns = 0;
  Nanos manifest_heard_ns = 0;
  Nanos verified_ns = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t scan_bytes_per_second = 0;
  template <class A>
  void fields(A& a) {
    a(session, host_state_bytes, root, final_heard_ns, scan_begin_ns, scan_end_ns, last_chunk_ns,
      manifest_heard_ns, verified_ns, state_bytes, scan_bytes_per_second);
  }
};

// A fingerprint at the target was not the staged copy's (the chunk is sent again), or a chunk changed at the target after its
// acknowledgement. The third time for one chunk is SessionFailed(kCorrupt).
struct Mismatch {
  CKPT_MOVER_MESSAGE(Mismatch);
  SessionKey session;
  std::uint64_t extent = 0;
  std::uint32_t chunk = 0;
  std::uint32_t times = 0;
  std::string tensor;
  template <class A>
  void fields(A& a) {
    a(session, extent, chunk, times, tensor);
  }
};

struct Dropped {
  CKPT_MOVER_MESSAGE(Dropped);
  SessionKey session;
  std::vector<std::uint64_t> regions;
  template <class A>
  void fields(A& a) {
    a(session, regions);
  }
};

struct SessionFailed {
  CKPT_MOVER_MESSAGE(SessionFailed);
  SessionKey session;
  Failure failure;
  template <class A>
  void fields(A& a) {
    a(session, failure);
  }
};

struct SessionEnded {
  CKPT_MOVER_MESSAGE(SessionEnded);
  SessionKey session;
  template <class A>
  void fields(A& a) {
    a(session);
  }
};
struct MadeRegions {  // one descriptor per region, in order; told before Verified
  CKPT_MOVER_MESSAGE(MadeRegions);
  SessionKey session;
  std::vector<RegionInfo> regions;
  template <class A>
  void fields(A& a) {
    a(session, regions);
  }
};
struct DroppedRegions {
  CKPT_MOVER_MESSAGE(DroppedRegions);
  SessionKey session;
  std::vector<std::uint64_t> regions;
  template <class A>
  void fields(A& a) {
    a(session, regions);
  }
};

struct
    Filled {  // each region is what it was copied from, by fingerprints of both; the mover holds neither any more
  CKPT_MOVER_MESSAGE(Filled);
  SessionKey session;
  std::uint64_t batch = 0;
  std::uint64_t bytes = 0;
  template <class A>
  void fields(A& a) {
    a(session, batch, bytes);
  }
};

struct FillFailed {
  CKPT_MOVER_MESSAGE(FillFailed);
  SessionKey session;
  std::uint64_t batch = 0;
  Failure failure;
  template <class A>
  void fields(A& a) {
    a(session, batch, failure);
  }
};
struct SnapshotReady {
  CKPT_MOVER_MESSAGE(SnapshotReady);
  SessionKey session;
  std::uint64_t state_bytes = 0;
  std::uint64_t dirty_bytes = 0;   // that differ from the version before, so far
  std::uint64_t staged_bytes = 0;  // of them
  template <class A>
  void fields(A& a) {
    a(session, state_bytes, dirty_bytes, staged_bytes);
  }
};

struct SnapshotStaged {
  CKPT_MOVER_MESSAGE(SnapshotStaged);
  SessionKey session;
  std::uint64_t state_bytes = 0;
  std::uint64_t dirty_bytes = 0;
  std::uint64_t waited_bytes = 0;  // that staging could not hold: they are in the vault
  std::int64_t scan_ns = 0;
  std::int64_t copy_ns = 0;
  template <class A>
  void fields(A& a) {
    a(session, state_bytes, dirty_bytes, waited_bytes, scan_ns, copy_ns);
  }
};

struct SnapshotDone {
  CKPT_MOVER_MESSAGE(SnapshotDone);
  SessionKey session;
  std::uint64_t version = 0;
  std::uint64_t parent = 0;  // 0: a full one
  std::uint64_t written_bytes = 0;
  std::uint64_t host_bytes = 0;
  template <class A>
  void fields(A& a) {
    a(session, version, parent, written_bytes, host_bytes);
  }
};

struct RestoreDone {  // one descriptor: host state (none if host_state_bytes is 0)
  CKPT_MOVER_MESSAGE(RestoreDone);
  SessionKey session;
  std::uint64_t version = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t host_state_bytes = 0;
  std::vector<std::string> skipped;  // newer versions that are damaged, and how
  template <class A>
  void fields(A& a) {
    a(session, version, state_bytes, host_state_bytes, skipped);
  }
};
#undef CKPT_MOVER_MESSAGE

// The order is the wire's numbering (index + 1); append only.
using Message =
    std::variant<Configure, OpenSession, AttachRegions, AttachTensors, DropTensors, DropRegions, StartTarget,
                 StartSource, MoverLimits, FinalRound, ReleaseManifest, EndSession, MoverReady, MoverFailed,
                 Attached, Listening, PlanAccepted, Progress, FirstRoundDone, Converged, DidNotConverge,
                 FinalSent, FinalDone, Verified, Mismatch, Dropped, SessionFailed, SessionEnded, MadeRegions,
                 RegionsLetGo, FillRegions, DroppedRegions, Filled, FillFailed, StartSnapshot, SnapshotHost,
                 StartRestore, SnapshotReady, SnapshotStaged, SnapshotDone, RestoreDone, HostRoom, HostGrew>;
[[nodiscard]] std::string_view name_of(const Message& message) noexcept;

// One packet. kInvalidArgument if it would be longer than kMostPacketBytes, or has more regions or tensors than one may have.
Result<std::vector<std::byte>> encode_message(const Message& message);
Result<Message> decode_message(std::span<const std::byte> packet);
// How many descriptors belong to it.
[[nodiscard]] std::size_t descriptors_of(const Message& message) noexcept;

// A message with its descriptors.
struct Packet {
  Packet() = default;
  Packet(Message m, std::vector<UniqueFd> f) : message(std::move(m)), fds(std::move(f)) {}
  Message message;
  std::vector<UniqueFd> fds;
};

// Sends one packet with descriptors (which stay the caller's). Waits while the socket is full, also on a non-blocking socket.
// kUnavailable: the other side is gone.
Result<void> send_message(int socket, const Message& message, std::span<const int> fds = {});
// Receives one packet; waits for one on a blocking socket. kUnavailable: end of file, the other side is gone. kTimedOut: none
// there on a non-blocking socket. kProtocol: not a message, or not the descriptors it needs (all that came are closed).
Result<Packet> receive_message(int socket);

}  // namespace ckpt::wire::mover
