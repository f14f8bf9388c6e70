// SPDX-License-Identifier: Apache-2.0
// The protocol between agent and mover. Each packet of an inherited AF_UNIX SOCK_SEQPACKET socketpair
// (descriptor 3 in the mover) has one message.
//
// A session is one rank of one migration on one GPU. Its key is in every message, and several sessions may be
// open. Agent A, source mover S, target mover T:
//
//   A>S,T Configure                        S,T>A MoverReady, or MoverFailed (the mover ends)
//   A>S,T OpenSession                      (no answer; opening one that is open is SessionFailed)
//   A>S,T AttachRegions +fds (<= 64)       S,T>A Attached: imported and mapped; the agent may close its
//                                          copies. Next batch after it
//   A>S,T AttachTensors (<= 96)            (no answer)
//   A>T   StartTarget                      T>A Listening{addresses}
//                                          T>A MadeRegions +fds (<= 64), if it has to make the memory:
//                                          once the source's plan is there
//   A>S   StartSource{addresses}           S>A PlanAccepted or SessionFailed (kRefused names the tensor); T>A
//                                          the same
//                                          S>A Progress (<= 10 a second), FirstRoundDone (stop-copy: at
//                                          once),
//                                              Converged or DidNotConverge (abort wanted: the session waits
//                                              for EndSession)
//         S keeps the target fresh after Converged until FinalRound comes.
//   A>S   HostStateFile +memory file fd    behind StartSource, where host state is sent while it is made: the
//                                          file it will fill from its front
//   A>S   FinalRound +host state fd        the rank is paused. S>A FinalSent: every chunk is acknowledged
//   A>S   HostGrew                         after HostStateFile: how far; what is there leaves beside the rounds.
//                                          After a FinalRound with that flag the last one reports that it is
//                                          whole
//   A>S   ReleaseManifest                  BARRIER is durable. May come before FinalSent; the manifest leaves
//                                          after both
//                                          T>A Verified +host state fd;  S>A FinalDone
//   A>S   MoverLimits, at any time
//   A>S   AttachRegions, AttachTensors, DropTensors while rounds run: the job named or allocated;
//         DropRegions: it freed.
//         S>A Dropped follows once nothing of the region is mapped here any more, at once also in a round.
//         T>A DroppedRegions, in a target that makes the memory: the job freed memory of MadeRegions. A>T
//         RegionsLetGo once no process of the agent's has them any more: a region that finds no memory waits
//         for that.
//   A>S,T FillRegions +fds             no session's: a process has made memory of its own, each region is
//                                      copied into it and compared. S,T>A Filled, FillFailed
//
// A snapshot is a source without a target, and a restore is a target without a source. The data is stored in
// a checkpoint store (libckpt/store/local) instead of being sent.
//   A>S   StartSnapshot +record fd         S>A SnapshotReady: what has changed since the last one is staged,
//                                          while the job runs
//   A>S   FinalRound (no host state)       the rank is paused. S>A SnapshotStaged: it may go on
//                                          S>A DroppedRegions (none named): S holds nothing of its memory any
//                                          more
//   A>S   SnapshotHost +host state fd      before or behind SnapshotStaged. S>A SnapshotDone: durable
//   A>S   JobLeft                          no session's: the job has left this GPU, what is remembered of its
//                                          snapshots goes
//   A>T   StartRestore                     T>A MadeRegions +fds (and DroppedRegions, where a damaged version
//                                          was begun), as above
//                                          T>A RestoreDone +host state fd: memory has its content, by
//                                          fingerprints of what was written
//
// A check has no memory. It tests whether one mover reaches another, with one lane that carries nothing.
//   A>T   StartTarget                      T>A Listening{one address}; PeerReached once its peer has left
//   A>S   ReachPeer{address}               S>A PeerReached
//
//   A>S,T EndSession, at any time          S,T>A SessionEnded: nothing of the job is held any more. Also
//                                          after SessionFailed
//   S,T>A SessionFailed                    the session does nothing more; EndSession must still follow. S
//                                          lets go of nothing before it
//
// A mover that loses its agent (end of file) exits and releases everything. For a session that is not open,
// EndSession is answered with SessionEnded and DropRegions with Dropped. Other messages are ignored.
//
// The messages are in mover_session_messages.h, mover_move_messages.h and mover_checkpoint_messages.h. This
// file has the packet.
//
// Threads: plain values and pure functions. Times are CLOCK_BOOTTIME nanoseconds of the sender's node; 0
// means not reached. Sizes are bytes, and rates are bytes per second. Errors: kProtocol for bytes that are
// not a message. Everything is limited by the packet's size.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/mover_checkpoint_messages.h"
#include "libckpt/protocol/wire/mover_move_messages.h"
#include "libckpt/protocol/wire/mover_session_messages.h"

namespace ckpt::wire::mover {

// The order determines the numbers on the wire (index + 1), so new messages are only appended.
using Message =
    std::variant<Configure, OpenSession, AttachRegions, AttachTensors, DropTensors, DropRegions, StartTarget,
                 StartSource, MoverLimits, FinalRound, ReleaseManifest, EndSession, MoverReady, MoverFailed,
                 Attached, Listening, PlanAccepted, Progress, FirstRoundDone, Converged, DidNotConverge,
                 FinalSent, FinalDone, Verified, Mismatch, Dropped, SessionFailed, SessionEnded, MadeRegions,
                 RegionsLetGo, FillRegions, DroppedRegions, Filled, FillFailed, StartSnapshot, SnapshotHost,
                 StartRestore, SnapshotReady, SnapshotStaged, SnapshotDone, RestoreDone, HostStateFile,
                 HostGrew, JobLeft, ReachPeer, PeerReached>;
[[nodiscard]] std::string_view name_of(const Message& message) noexcept;

// Encodes one packet. Returns kInvalidArgument if the packet would be longer than kMaxPacketBytes, or has
// more regions or tensors than one packet may have.
Result<std::vector<std::byte>> encode_message(const Message& message);
Result<Message> decode_message(std::span<const std::byte> packet);
// Returns the number of descriptors that belong to the message.
[[nodiscard]] std::size_t descriptors_of(const Message& message) noexcept;

// A message and its descriptors.
struct Packet {
  Packet() = default;
  Packet(Message m, std::vector<UniqueFd> f) : message(std::move(m)), fds(std::move(f)) {}
  Message message;
  std::vector<UniqueFd> fds;
};

// Sends one packet with descriptors, which the caller still owns. Waits while the socket is full, also on a
// non-blocking socket. Returns kUnavailable if the other side has closed.
Result<void> send_message(int socket, const Message& message, std::span<const int> fds = {});
// Receives one packet, and waits for it on a blocking socket. kUnavailable: end of file, since the other side
// has closed. kTimedOut: a non-blocking socket has no packet. kProtocol: not a message, or not the
// descriptors that the message needs (all received descriptors are closed).
Result<Packet> receive_message(int socket);

}  // namespace ckpt::wire::mover
