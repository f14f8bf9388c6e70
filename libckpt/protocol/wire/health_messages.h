// SPDX-License-Identifier: Apache-2.0
// The messages on the health of an agent's GPUs: its findings, and its conclusion for each job
// (libckpt/health decides; docs/design.md §8).
//
//   agent                          coordinator
//     | HealthReport    ------------->  |   every finding the coordinator has not acknowledged; again at each
//                                           new connection
//     | <----------- HealthSettings     |   behind the Welcome, at each change, and as the acknowledgement of
//                                           a report
//
// The coordinator acts: it cordons, moves, restores, parks; an agent never moves a job by itself. Fields are
// only ever appended. Times are Unix milliseconds. Decoding bounds sizes and enums; everything else is
// checked by its user.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/protocol/wire/codec.h"
#include "libckpt/protocol/wire/commit_messages.h"
#include "libckpt/record/names.h"

namespace ckpt::wire {

// The measure to take for one process of a GPU in trouble.
enum class HealthOutcome : std::uint8_t {
  kInvalid = 0,
  kNone = 1,     // nothing: it is not concerned, or it is the job's own matter
  kLive = 2,     // its memory can be read: move it live, with a deadline, and restore if that does not work
  kRestore = 3,  // its memory must not be read, or its context is lost: restore it from its newest image
};
[[nodiscard]] constexpr bool is_known(HealthOutcome o) {
  return o >= HealthOutcome::kNone && o <= HealthOutcome::kRestore;
}
constexpr auto names_of(record::Of<HealthOutcome>) {
  return record::names<HealthOutcome>(
      {{HealthOutcome::kNone, "none"}, {HealthOutcome::kLive, "live"}, {HealthOutcome::kRestore, "restore"}});
}

struct JobVerdict {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  JobId job = 0;
  Incarnation incarnation = 0;
  HealthOutcome outcome = HealthOutcome::kNone;
  std::string reason;  // one line for people
  template <class A>
  decltype(auto) fields(A& a) {
    return a(job, incarnation, outcome, reason);
  }
};

struct HealthFinding {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint64_t number = 0;  // grows on its node for ever, also over the agent's restarts
  std::int64_t time_ms = 0;
  std::uint32_t gpu = 0;
  std::string gpu_uuid;
  std::string source;          // nvml, kernel-log, recovery-action, watchdog, probe, inventory
  std::uint32_t xid = 0;       // 0: none
  std::uint32_t recovery = 0;  // NVML field 230
  bool cordon = false;         // nothing new on this GPU
  bool urgent = true;          // false: when there is memory and time (a predictive Xid)
  bool leave_node = false;     // the host is suspect, too: to another node
  HealthOutcome outcome = HealthOutcome::kNone;  // for processes that `jobs` does not name
  std::string reason;                            // one line for people: what, from where, which rule
  std::vector<JobVerdict> jobs;                  // of this GPU
  template <class A>
  decltype(auto) fields(A& a) {
    return a(number, time_ms, gpu, gpu_uuid, source, xid, recovery, cordon, urgent, leave_node, outcome,
             reason, jobs);
  }
};

struct HealthReport {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kHealthReport;
  std::vector<HealthFinding> findings;  // by number
  template <class A>
  decltype(auto) fields(A& a) {
    return a(findings);
  }
};

struct HealthSettings {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kHealthSettings;
  std::uint64_t known_number = 0;  // findings up to this one are durable at the coordinator
  bool paused = false;             // `policy pause`: findings are reported, nothing is done about them
  template <class A>
  decltype(auto) fields(A& a) {
    return a(known_number, paused);
  }
};

}  // namespace ckpt::wire
