// SPDX-License-Identifier: Apache-2.0
// The messages about the health of an agent's GPUs: its findings, and its conclusion for each job.
// libckpt/health makes these decisions (docs/design.md §8).
//
//   agent                          coordinator
//     | HealthReport    ------------->  |   every finding the coordinator has not acknowledged; again at each
//                                           new connection
//     | <----------- HealthSettings     |   behind the Welcome, at each change, and as the acknowledgement of
//                                           a report
//
// The coordinator acts: it cordons, moves, restores and parks. An agent never moves a job on its own. Fields
// are only ever appended. Times are Unix milliseconds. Decoding checks sizes and enums; users of a message
// check everything else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/protocol/wire/codec.h"
#include "libckpt/protocol/wire/commit_messages.h"
#include "libckpt/record/names.h"

namespace ckpt::wire {

// The action for one process of a GPU in trouble.
enum class HealthOutcome : std::uint8_t {
  kInvalid = 0,
  kNone = 1,     // no action is required: the process is not affected, or the job handles the problem itself
  kLive = 2,     // the process's memory can be read: move the process live, with a deadline, and restore it
                 // if the move fails
  kRestore = 3,  // the process's memory must not be read, or its context is lost: restore the process from
                 // its newest image
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
  std::string reason;  // the reason, as one line for people
  template <class A>
  decltype(auto) fields(A& a) {
    return a(job, incarnation, outcome, reason);
  }
};

struct HealthFinding {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint64_t number = 0;  // a number that increases with every finding of the node, also across restarts
                             // of the agent
  std::int64_t time_ms = 0;
  std::uint32_t gpu = 0;
  std::string gpu_uuid;
  std::string source;          // the source of the finding: nvml, kernel-log, recovery-action, watchdog,
                               // probe or inventory
  std::uint32_t xid = 0;       // the Xid; 0 if there is none
  std::uint32_t recovery = 0;  // the recovery action (NVML field 230)
  bool cordon = false;         // whether new jobs are kept away from this GPU
  bool urgent = true;          // whether to act at once; if false, act when memory and time are available (a
                               // predictive Xid)
  bool leave_node = false;     // whether the host is suspect, too, so that jobs move to another node
  HealthOutcome outcome = HealthOutcome::kNone;  // the outcome for every process that `jobs` does not name
  std::string reason;            // the event, its source, and the rule, as one line for people
  std::vector<JobVerdict> jobs;  // the verdicts for the jobs of this GPU
  template <class A>
  decltype(auto) fields(A& a) {
    return a(number, time_ms, gpu, gpu_uuid, source, xid, recovery, cordon, urgent, leave_node, outcome,
             reason, jobs);
  }
};

struct HealthReport {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kHealthReport;
  std::vector<HealthFinding> findings;  // the findings, in the order of their numbers
  template <class A>
  decltype(auto) fields(A& a) {
    return a(findings);
  }
};

struct HealthSettings {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kHealthSettings;
  std::uint64_t known_number = 0;  // the number up to which findings are durable at the coordinator
  bool paused = false;  // whether `policy pause` is in effect: findings are reported, but cause no action
  template <class A>
  decltype(auto) fields(A& a) {
    return a(known_number, paused);
  }
};

}  // namespace ckpt::wire
