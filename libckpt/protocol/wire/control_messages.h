// SPDX-License-Identifier: Apache-2.0
// Messages of the control plane. Two kinds of connection carry them, and the dialer sends first: agent ->
// coordinator, and agent -> agent. The latter is the peer link: Hello, HelloReply, Ping, Pong and kCommit
// frames only.
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
//     | <-------------- switch Prepare  |   its `plan` is an encoded MigrationPlan
//     | switch messages ------------->  | ------------------------->  |   a switch frame whose `to` is the
//                                                                         other side is
//     | switch messages ----------------------------------------->    |   passed on by the coordinator; or
//                                                                         the peer link
//     | MigrationProgress ----------->  |   a few times a second, from the source
//     | <----------------- SetLimits    |
//     | SourceReport, TargetReport -->  |   once the side knows the outcome; repeated after a reconnect until
//                                           CLOSED
//     | <----------------- ForgetJob    |
//     | <--- DescribeJob, DescribeHandover |   of what this coordinator does not know: its store was lost, or
//                                            is an older copy
//     | JobFacts, HandoverFacts, Reply ->  |
//
// Fields are only ever appended (codec.h skips what a newer sender appends). A change of meaning takes a new
// frame type. kControlVersion is the version of the whole set, compared in Hello. Times are CLOCK_BOOTTIME
// nanoseconds of the node that states them, spans nanoseconds, sizes bytes. All are value types and no
// aggregates (g++ 12 destroys aggregate temporaries in co_await twice). Decoding bounds sizes and enums;
// everything else is checked by its user.
//
// Here: what opens and keeps a connection, and the answer to requests. Reports of a node:
// node_messages.h; of and to its jobs: job_messages.h; migrations: migration_messages.h; health:
// health_messages.h; images: image_messages.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/protocol/wire/codec.h"

namespace ckpt::wire {

inline constexpr std::uint32_t kControlVersion = 2;  // the version of the messages; since version 2, both
                                                     // commits use one frame type

struct Hello {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kHello;
  std::uint32_t version = kControlVersion;
  std::string name;   // the dialer's node name
  std::string token;  // the token in hex digits, from the 0600 file that both sides have
  template <class A>
  decltype(auto) fields(A& a) {
    return a(version, name, token);
  }
};

struct HelloReply {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kHelloReply;
  std::uint32_t version = kControlVersion;
  bool accepted = false;
  std::string reason;  // the reason for a refusal, for the dialer's log
  template <class A>
  decltype(auto) fields(A& a) {
    return a(version, accepted, reason);
  }
};

struct Ping {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kPing;
  std::uint64_t cookie = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(cookie);
  }
};

struct Pong {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kPong;
  std::uint64_t cookie = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(cookie);
  }
};

// The answer to StartJob, StopJob, SetLimits, ForgetJob, and to a ReadLog that failed. After StartJob, the
// keeper and its ranks have been started, or the reason is given. After StopJob, the signal is sent.
struct Reply {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kReply;
  std::uint64_t request_id = 0;
  bool ok = true;
  std::uint8_t error_code = 0;  // an ErrorCode if `ok` is false
  std::string message;
  std::uint8_t program_status = 0;  // a status of libckpt/base/program_error.h; 0 for any other error
  void set_error(const Error& error);
  [[nodiscard]] Error to_error() const;  // returns kInternal for an unknown code
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, ok, error_code, message, program_status);
  }
};

// Returns the frame of a message, in the form that Connection::send needs.
template <class M>
Result<std::vector<std::byte>> to_frame(const M& message, std::uint64_t sequence) {
  return make_frame(M::kFrame, sequence, encode(message));
}

}  // namespace ckpt::wire
