// SPDX-License-Identifier: Apache-2.0
// The coordinator's requests to an agent for jobs: starting, adopting, stopping, forgetting, reading logs.
// control_messages.h has the order and the rules of all these messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/migration_mode.h"
#include "libckpt/protocol/wire/codec.h"
#include "libckpt/protocol/wire/commit_messages.h"
#include "libckpt/record/names.h"

namespace ckpt {

// libckpt/base does not know the wire format. Argument-dependent lookup requires this function in the
// namespace of the enum. The codec writes the enum's value: these are the numbers on the wire and in files.
static_assert(sizeof(MigrationMode) == 1 && static_cast<int>(MigrationMode::kCooperative) == 1 &&
              static_cast<int>(MigrationMode::kTransparent) == 2 &&
              static_cast<int>(MigrationMode::kAdopted) == 3);
[[nodiscard]] constexpr bool is_known(MigrationMode mode) {
  return mode >= MigrationMode::kCooperative && mode <= MigrationMode::kAdopted;
}

}  // namespace ckpt

namespace ckpt::wire {

struct RankSpec {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint32_t rank = 0;
  std::uint32_t gpu_index = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(rank, gpu_index);
  }
};

// The value of --communicators: when the new communicators are made, both of ranks that move and of ranks
// that stay.
enum class Communicators : std::uint8_t {
  kInvalid = 0,
  kOverlap = 1,  // while the ranks compute, before the pause
  kInPause = 2,  // while all ranks are held, so that nothing in the program uses the old communicators
};
[[nodiscard]] constexpr bool is_known(Communicators when) {
  return when == Communicators::kOverlap || when == Communicators::kInPause;
}
constexpr auto names_of(record::Of<Communicators>) {
  return record::names<Communicators>(
      {{Communicators::kOverlap, "overlap"}, {Communicators::kInPause, "in-pause"}});
}

// The value of --connections: what a move to another node does with TCP connections to other programs.
enum class Connections : std::uint8_t {
  kInvalid = 0,
  kRefuse = 1,  // a program with such a connection is not moved
  kReset = 2,   // the program's connections to other programs end at the switch, as after a network failure
};
[[nodiscard]] constexpr bool is_known(Connections connections) {
  return connections == Connections::kRefuse || connections == Connections::kReset;
}
constexpr auto names_of(record::Of<Connections>) {
  return record::names<Connections>({{Connections::kRefuse, "refuse"}, {Connections::kReset, "reset"}});
}

// The gang of a job that is one of its ranks. To agents each rank is a separate job (docs/adr/0039).
struct GangSpec {
  static constexpr std::uint8_t kVersion = 3, kCompat = 1;
  JobId id = 0;  // the id of the gang, from the same number range as jobs; 0 for no gang
  std::string name;
  std::uint32_t ranks = 0;                                // the number of ranks in the gang
  bool one_node = false;                                  // whether all ranks are on one node
  Communicators communicators = Communicators::kOverlap;  // the default value for a move without the option
  // Returns whether the job is a rank of a gang.
  [[nodiscard]] bool has_peers() const noexcept { return id != 0; }
  template <class A>
  decltype(auto) fields(A& a) {
    return a(id, name, ranks, one_node, communicators);
  }
};

// The value of --namespaces: what a job shares with its node (docs/adr/0056).
enum class Namespaces : std::uint8_t {
  kInvalid = 0,
  kNone = 1,  // a transparent job has its own PID namespace, and shares everything else with its node
  kOwn = 2,   // a transparent job also has its own mount, IPC and UTS namespaces, its own /proc and its own
              // /dev/shm
};
[[nodiscard]] constexpr bool is_known(Namespaces namespaces) {
  return namespaces == Namespaces::kNone || namespaces == Namespaces::kOwn;
}
constexpr auto names_of(record::Of<Namespaces>) {
  return record::names<Namespaces>({{Namespaces::kNone, "none"}, {Namespaces::kOwn, "own"}});
}

// The maximum size of an encoded JobSpec. A job within the limit fits into every later message and record
// about it.
inline constexpr std::size_t kMaxJobSpecBytes = std::size_t{512} << 10;

struct JobSpec {
  static constexpr std::uint8_t kVersion = 6, kCompat = 1;
  JobId job = 0;
  std::string name;
  std::vector<std::string> argv;
  std::vector<std::string> env;  // the environment, as entries KEY=VALUE
  std::string cwd;               // the working directory, as an absolute path
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  Incarnation incarnation = 0;
  std::uint64_t gpu_memory_bytes = 0;  // the requested GPU memory; 0 if none was requested
  std::vector<RankSpec> ranks;
  MigrationMode mode = MigrationMode::kCooperative;
  // kAdopted: the process's id on its first node, and its start time (field 22 of /proc/PID/stat). Together
  // they identify the process permanently.
  std::int32_t adopt_pid = 0;
  std::uint64_t adopt_start_ticks = 0;
  std::int32_t priority = 0;  // the priority of the job; a job with a higher priority is moved or parked
                              // later
  GangSpec gang;
  Connections connections = Connections::kRefuse;  // the setting for a move without this option
  Namespaces namespaces = Namespaces::kNone;
  bool private_tmp = false;  // kOwn: whether the job also has its own /tmp
  [[nodiscard]] bool has_own_namespaces() const noexcept { return namespaces == Namespaces::kOwn; }
  template <class A>
  decltype(auto) fields(A& a) {
    return a(job, name, argv, env, cwd, uid, gid, incarnation, gpu_memory_bytes, ranks, mode, adopt_pid,
             adopt_start_ticks, priority, gang, connections, namespaces, private_tmp);
  }
};

// An order to start a job. A repetition with the same job and incarnation starts nothing and gets the first
// order's outcome.
struct StartJob {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kStartJob;
  std::uint64_t request_id = 0;
  JobSpec spec;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, spec);
  }
};

// A query for the facts of a process that `adopt` needs before there is a job. The answer is ProcessFacts, or
// a Reply with the reason why the process cannot be adopted.
struct InspectProcess {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kInspectProcess;
  std::uint64_t request_id = 0;
  std::int32_t pid = 0;
  std::string machine;  // the boot id of the machine whose process ids are used; if empty, the node's own
  std::uint64_t start_ticks = 0;  // the start time of the process; 0: any process that has the id now
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, pid, machine, start_ticks);
  }
};

struct ProcessFacts {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kProcessFacts;
  std::uint64_t request_id = 0;
  std::uint64_t start_ticks = 0;
  std::vector<std::string> argv;
  std::string cwd;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t gpu_index = 0;
  std::uint64_t device_bytes = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, start_ticks, argv, cwd, uid, gid, gpu_index, device_bytes);
  }
};

// A query of a coordinator that does not know a job: how was its instance started? The answer is JobFacts, or
// a Reply with the reason.
struct DescribeJob {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kDescribeJob;
  std::uint64_t request_id = 0;
  JobId job = 0;
  Incarnation incarnation = 0;  // the incarnation with which the instance was started
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, job, incarnation);
  }
};

struct JobFacts {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kJobFacts;
  std::uint64_t request_id = 0;
  JobSpec spec;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, spec);
  }
};

// An order to stop every instance of the job with this incarnation or a lower one. The ranks get SIGTERM, and
// SIGKILL after the grace period.
struct StopJob {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kStopJob;
  std::uint64_t request_id = 0;
  JobId job = 0;
  Incarnation incarnation = 0;
  std::int64_t grace_ns = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, job, incarnation, grace_ns);
  }
};

// A notice that the coordinator no longer needs anything of this job. The agent removes the folders (logs,
// status) of ended instances.
struct ForgetJob {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kForgetJob;
  std::uint64_t request_id = 0;
  JobId job = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, job);
  }
};

struct ReadLog {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kReadLog;
  std::uint64_t request_id = 0;
  JobId job = 0;
  Incarnation incarnation = 0;
  std::uint64_t offset = 0;
  std::uint32_t limit = 0;  // the maximum number of bytes in the answer, at most kMaxLogBytes
  std::int64_t follow_ns =
      0;  // the maximum time to wait if there is no data at the offset yet; data or the end of the log is
          // answered earlier
  bool with_times = false;    // whether each line begins with the time at which the node received it
  std::int64_t since_ms = 0;  // Unix time; lines that the node received earlier are omitted; 0 omits nothing
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, job, incarnation, offset, limit, follow_ns, with_times, since_ms);
  }
};
inline constexpr std::uint32_t kMaxLogBytes = 256 * 1024;

struct LogData {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kLogData;
  std::uint64_t request_id = 0;
  std::uint64_t offset = 0;  // the offset of the first byte of `bytes`; `since_ms` may omit some bytes before
                             // it
  std::string bytes;
  bool ended = false;        // whether the instance has ended and `bytes` reaches the end of its log
  std::uint64_t covers = 0;  // the bytes of the log that `bytes` represents, if it has times; 0: the size of
                             // `bytes`
  [[nodiscard]] std::uint64_t next_offset() const { return offset + (covers == 0 ? bytes.size() : covers); }
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, offset, bytes, ended, covers);
  }
};

}  // namespace ckpt::wire
