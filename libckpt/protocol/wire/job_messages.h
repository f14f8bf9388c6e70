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

// base knows nothing of the wire, and found by argument-dependent lookup this must stand beside the enum.
// The codec writes its value: these are the numbers on the wire and in files.
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

// --communicators: when the new ones of ranks that move, and of those that stay, are made.
enum class Communicators : std::uint8_t {
  kInvalid = 0,
  kOverlap = 1,  // while the ranks compute, ahead of the pause
  kInPause = 2,  // while all of them are held: nothing of the program uses the old ones meanwhile
};
[[nodiscard]] constexpr bool is_known(Communicators when) {
  return when == Communicators::kOverlap || when == Communicators::kInPause;
}
constexpr auto names_of(record::Of<Communicators>) {
  return record::names<Communicators>(
      {{Communicators::kOverlap, "overlap"}, {Communicators::kInPause, "in-pause"}});
}

// The gang of a job that is a rank of one. To agents each rank is a job of its own (docs/adr/0039).
struct GangSpec {
  static constexpr std::uint8_t kVersion = 3, kCompat = 1;
  JobId id = 0;  // of the same numbers as jobs; 0: of none
  std::string name;
  std::uint32_t ranks = 0;                                // how many it has
  bool one_node = false;                                  // they all stand on one
  Communicators communicators = Communicators::kOverlap;  // of a move that is not told otherwise
  template <class A>
  decltype(auto) fields(A& a) {
    return a(id, name, ranks, one_node, communicators);
  }
};

// The most bytes of an encoded JobSpec. A job within them fits into every later message and record of it.
inline constexpr std::size_t kMaxJobSpecBytes = std::size_t{512} << 10;

struct JobSpec {
  static constexpr std::uint8_t kVersion = 5, kCompat = 1;
  JobId job = 0;
  std::string name;
  std::vector<std::string> argv;
  std::vector<std::string> env;  // KEY=VALUE
  std::string cwd;               // absolute
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  Incarnation incarnation = 0;
  std::uint64_t gpu_memory_bytes = 0;  // by request, 0 = none given
  std::vector<RankSpec> ranks;
  MigrationMode mode = MigrationMode::kCooperative;
  // kAdopted: the process as its first node counts, and when it was started (field 22 of /proc/PID/stat),
  // which names it for ever.
  std::int32_t adopt_pid = 0;
  std::uint64_t adopt_start_ticks = 0;
  std::int32_t priority = 0;  // the higher, the later it is disturbed
  GangSpec gang;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(job, name, argv, env, cwd, uid, gid, incarnation, gpu_memory_bytes, ranks, mode, adopt_pid,
             adopt_start_ticks, priority, gang);
  }
};

// Repeated with the same job and incarnation it is answered with the first one's outcome and starts nothing.
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

// Asks for the facts of a process that `adopt` needs before there is a job. Answered with ProcessFacts, or
// with a Reply that has the reason why the process cannot be adopted.
struct InspectProcess {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kInspectProcess;
  std::uint64_t request_id = 0;
  std::int32_t pid = 0;
  std::string machine;            // boot id of the machine that counts so; empty: the node's own
  std::uint64_t start_ticks = 0;  // 0: whichever process has the id now
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

// How an instance was started, for a coordinator that does not know its job. Answered with JobFacts, or with
// a Reply that has the reason.
struct DescribeJob {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kDescribeJob;
  std::uint64_t request_id = 0;
  JobId job = 0;
  Incarnation incarnation = 0;  // as which it was started
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

// SIGTERM, after the grace SIGKILL, to every instance of the job with this incarnation or a lower one.
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

// The coordinator needs nothing of this job any more: the agent removes its folders (logs, status) of ended
// instances.
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
  std::uint32_t limit = 0;  // at most kMaxLogBytes
  std::int64_t follow_ns =
      0;                    // with nothing at the offset yet: answer when there is, at the end, or after this
  bool with_times = false;  // each line begins with the time at which the node saw it
  std::int64_t since_ms = 0;  // Unix time: leaves out what the node saw before; 0: nothing
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
  std::uint64_t offset = 0;  // of the first byte of `bytes`; `since_ms` may leave out some before
  std::string bytes;
  bool ended = false;        // the instance has ended and `bytes` reaches the end of its log
  std::uint64_t covers = 0;  // bytes of the log that `bytes` stands for, with times; 0: its own size
  [[nodiscard]] std::uint64_t next_offset() const { return offset + (covers == 0 ? bytes.size() : covers); }
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, offset, bytes, ended, covers);
  }
};

}  // namespace ckpt::wire
