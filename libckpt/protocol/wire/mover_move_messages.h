// SPDX-License-Identifier: Apache-2.0
// The messages between agent and mover for one rank's move, from StartTarget to Verified. mover_messages.h
// has the order and the rules of all these messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/mover_values.h"

namespace ckpt::wire::mover {

struct StartTarget {
  CKPT_MOVER_MESSAGE(StartTarget);
  SessionKey session;
  std::uint32_t lanes = 0;  // the number of lanes; 0 for the default, which is the number of addresses in
                            // Listening
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, lanes);
  }
};

struct Listening {
  CKPT_MOVER_MESSAGE(Listening);
  SessionKey session;
  std::vector<std::string> addresses;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, addresses);
  }
};

// An order to connect one lane to `address`, in a session for a check. The answer is PeerReached or
// SessionFailed.
struct ReachPeer {
  CKPT_MOVER_MESSAGE(ReachPeer);
  SessionKey session;
  std::string address;  // an address of Listening
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, address);
  }
};

struct PeerReached {
  CKPT_MOVER_MESSAGE(PeerReached);
  SessionKey session;
  std::int64_t connect_ns = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, connect_ns);
  }
};

struct StartSource {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr std::string_view kName = "StartSource";
  SessionKey session;
  std::vector<std::string> addresses;  // the addresses of Listening
  MigrateOptions options;
  // The agent's expected terms of the pause: `fixed_cost_ns` is all terms except the copy, and
  // `beside_copy_ns` is the part that runs concurrently with the copy.
  std::int64_t fixed_cost_ns = 0;
  bool same_host = false;  // whether the target's mover is on this node and may read this mover's memory
  std::int64_t beside_copy_ns = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, addresses, options, fixed_cost_ns, same_host, beside_copy_ns);
  }
};

// A notice that the plan is accepted: every source tensor has a place at the target.
struct PlanAccepted {
  CKPT_MOVER_MESSAGE(PlanAccepted);
  SessionKey session;
  std::uint64_t state_bytes = 0;  // the size of the state, with tied and contained tensors counted once
  std::uint64_t tensors = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, state_bytes, tensors);
  }
};

struct MoverLimits {  // the limits of the session while it runs; an absent value is -1, and a bandwidth of 0
                      // is unlimited
  CKPT_MOVER_MESSAGE(MoverLimits);
  SessionKey session;
  std::int64_t max_downtime_ns = -1;
  std::int64_t bandwidth_bytes_per_second = -1;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, max_downtime_ns, bandwidth_bytes_per_second);
  }
};

struct Progress {
  static constexpr std::uint8_t kVersion = 3, kCompat = 1;
  static constexpr std::string_view kName = "Progress";
  SessionKey session;
  std::uint32_t round = 0;
  std::uint64_t done_bytes = 0;   // the completed bytes of this round
  std::uint64_t total_bytes = 0;  // the bytes of this round, as known now
  std::uint64_t state_bytes = 0;
  std::uint64_t sent_bytes = 0;  // the bytes sent over all rounds
  std::uint64_t remaining_bytes = 0;
  std::uint64_t dirty_bytes_per_second = 0;
  std::uint64_t throughput_bytes_per_second = 0;
  std::int64_t estimate_ns = 0;  // the estimated downtime for a handover at this moment
  std::int64_t eta_ns = -1;      // the estimated time until the handover; negative if it is not known
  std::uint64_t wire_bytes_per_second = 0;  // the recent rate, encoded and with headers; 0 if it is not known
                                            // yet
  std::uint64_t host_state_bytes = 0;       // the bytes of HostStateFile's file that were passed to the lane
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, round, done_bytes, total_bytes, state_bytes, sent_bytes, remaining_bytes,
             dirty_bytes_per_second, throughput_bytes_per_second, estimate_ns, eta_ns, wire_bytes_per_second,
             host_state_bytes);
  }
};

struct FirstRoundDone {
  CKPT_MOVER_MESSAGE(FirstRoundDone);
  SessionKey session;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session);
  }
};

// A notice that it is time to switch. If `within_limit` is false, rounds do not shrink (or max_rounds is
// reached) and the options require a switch.
struct Converged {
  CKPT_MOVER_MESSAGE(Converged);
  SessionKey session;
  std::uint32_t rounds = 0;
  std::int64_t estimate_ns = 0;
  bool within_limit = false;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, rounds, estimate_ns, within_limit);
  }
};

// A notice that rounds do not shrink (or max_rounds is reached) and that the options require an abort.
struct DidNotConverge {
  CKPT_MOVER_MESSAGE(DidNotConverge);
  SessionKey session;
  std::uint32_t rounds = 0;
  std::int64_t estimate_ns = 0;
  std::string reason;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, rounds, estimate_ns, reason);
  }
};

struct FinalRound {  // a message with one descriptor of the host state; none if host_state_bytes is 0
  CKPT_MOVER_MESSAGE(FinalRound);
  SessionKey session;
  Nanos barrier_entered_ns = 0;  // the time at which the barrier was entered, on the rank's clock
  Nanos paused_ns = 0;
  std::uint64_t host_state_bytes = 0;
  bool host_state_grows = false;  // whether the host state is HostStateFile's file, up to the size that
                                  // HostGrew reports
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, barrier_entered_ns, paused_ns, host_state_bytes, host_state_grows);
  }
};

struct HostStateFile {  // a message with one descriptor of a memory file of `limit` bytes that cannot shrink
  CKPT_MOVER_MESSAGE(HostStateFile);
  SessionKey session;
  std::uint64_t limit = 0;
  std::uint64_t expected = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, limit, expected);
  }
};

struct HostGrew {
  CKPT_MOVER_MESSAGE(HostGrew);
  SessionKey session;
  std::uint64_t filled = 0;
  bool whole = false;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, filled, whole);
  }
};

struct ReleaseManifest {
  CKPT_MOVER_MESSAGE(ReleaseManifest);
  SessionKey session;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session);
  }
};

// A mismatch: a fingerprint at the target differed from the staged copy's (the chunk is sent again), or a
// chunk changed at the target after its acknowledgement. The third mismatch of one chunk is
// SessionFailed(kCorrupt).
struct Mismatch {
  CKPT_MOVER_MESSAGE(Mismatch);
  SessionKey session;
  std::uint64_t extent = 0;
  std::uint32_t chunk = 0;
  std::uint32_t times = 0;
  std::string tensor;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, extent, chunk, times, tensor);
  }
};

// The source's measurements. Those of the final round are 0 before the final round.
struct SourceCounters {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr std::string_view kName = "SourceCounters";
  std::uint32_t rounds = 0;  // the number of rounds, including the final one
  std::uint64_t state_bytes = 0;
  std::uint64_t sent_bytes = 0;     // the chunks' bytes before encoding
  std::uint64_t wire_bytes = 0;     // the bytes after encoding, including headers
  std::uint64_t dirty_bytes = 0;    // the bytes that were found changed and sent again after the first round,
                                    // over all rounds
  std::uint64_t final_bytes = 0;    // the bytes found in the final round
  std::uint64_t host_bytes = 0;     // the bytes of host state that were sent in the final round
  std::uint64_t resent_chunks = 0;  // the number of chunks that were sent again after a mismatch of
                                    // fingerprints
  std::uint64_t link_bytes_per_second = 0;  // the rate of a plain stream over the same lanes, or of a faster
                                            // round
  std::uint64_t scan_bytes_per_second = 0;  // the rate of the fastest full scan of this session
  std::int64_t scan_ns = 0;                 // the duration of the final scan
  std::int64_t copy_ns = 0;               // the duration of the final round, from the first copy to the last
                                          // acknowledgement
  std::int64_t estimate_ns = 0;           // the last estimate before the barrier
  std::int64_t clock_offset_ns = 0;       // target's clock minus source's clock
  std::int64_t clock_uncertainty_ns = 0;  // half the fastest round-trip time
  std::uint64_t host_ahead_bytes = 0;     // the bytes of host state that were sent before the final round
  template <class A>
  decltype(auto) fields(A& a) {
    return a(rounds, state_bytes, sent_bytes, wire_bytes, dirty_bytes, final_bytes, host_bytes, resent_chunks,
             link_bytes_per_second, scan_bytes_per_second, scan_ns, copy_ns, estimate_ns, clock_offset_ns,
             clock_uncertainty_ns, host_ahead_bytes);
  }
};

struct FinalSent {
  CKPT_MOVER_MESSAGE(FinalSent);
  SessionKey session;
  Nanos final_received_ns = 0;  // the time at which FinalRound reached the mover; the term quiesce ends here
  Nanos scan_begin_ns = 0;
  Nanos scan_end_ns = 0;
  Nanos last_ack_ns = 0;  // the time at which the last chunk was acknowledged; the term final ends here
  SourceCounters counters;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, final_received_ns, scan_begin_ns, scan_end_ns, last_ack_ns, counters);
  }
};

// A notice that the target has verified and reported that. From now on the source's mover only holds its
// memory.
struct FinalDone {
  CKPT_MOVER_MESSAGE(FinalDone);
  SessionKey session;
  Nanos final_received_ns = 0;
  Nanos scan_begin_ns = 0;
  Nanos scan_end_ns = 0;
  Nanos last_ack_ns = 0;
  Nanos manifest_sent_ns = 0;
  Nanos verified_heard_ns = 0;
  SourceCounters counters;  // the source's counters, with the second measurement of the clocks
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, final_received_ns, scan_begin_ns, scan_end_ns, last_ack_ns, manifest_sent_ns,
             verified_heard_ns, counters);
  }
};

struct Verified {  // a message with one descriptor of the sealed host state; none if host_state_bytes is 0
  CKPT_MOVER_MESSAGE(Verified);
  SessionKey session;
  std::uint64_t host_state_bytes = 0;
  std::string root;  // the verified root in hex digits
  Nanos final_heard_ns = 0;
  Nanos scan_begin_ns = 0;
  Nanos scan_end_ns = 0;
  Nanos last_chunk_ns = 0;
  Nanos manifest_heard_ns = 0;
  Nanos verified_ns = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t scan_bytes_per_second = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, host_state_bytes, root, final_heard_ns, scan_begin_ns, scan_end_ns, last_chunk_ns,
             manifest_heard_ns, verified_ns, state_bytes, scan_bytes_per_second);
  }
};

}  // namespace ckpt::wire::mover
