// SPDX-License-Identifier: Apache-2.0
// Settings of threads and processes that CRIU does not save. For a thread, these are its allowed processors,
// its I/O priority, its timer slack and its time slice. For a process, these are the content of its core
// dumps, and the nice value of its session (autogroup, sched(7)). Only settings are recorded that differ from
// those of a thread that this agent starts. A restored thread may run on those of its former processors that
// the target also has, and on stand-ins for the others (processor_map.h). If the thread had all processors of
// the source, it gets all processors of the target.
// Threads: any. The functions read files under /proc (use offload()). Errors: kCorrupt for malformed bytes.
// kIo. A setting that the target refuses is logged, and the program continues without the setting.
// Processors that the target lacks are a remark for the move's report.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/host_process/processes/processor_map.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxTaskSettings = 1u << 20;

struct ThreadSettings {
  // Version 2 adds the time slice.
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr std::string_view kName = "ThreadSettings";
  std::uint32_t thread = 0;          // id of the thread or process in its own PID namespace
  Processors processors;             // allowed processors; empty means the agent's processors
  bool all_processors = false;       // true if the thread may run on all processors of the node
  std::uint32_t io_priority = 0;     // value of ioprio_get(2); 0 means none
  std::uint64_t timer_slack_ns = 0;  // timer slack; 0 means the usual value
  std::uint64_t slice_ns = 0;        // time slice (sched_setattr(2)); 0 means the usual value
  template <class A>
  decltype(auto) fields(A& a) {
    return a(thread, processors, all_processors, io_priority, timer_slack_ns, slice_ns);
  }
  friend bool operator==(const ThreadSettings&, const ThreadSettings&) = default;
};

struct ProcessSettings {
  // Version 2 adds the nice value of the session.
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr std::string_view kName = "ProcessSettings";
  std::uint32_t process = 0;  // id of the process in its own PID namespace
  std::uint32_t core_dump_filter = 0;
  std::int32_t session_nice = 0;  // nice value of the session's autogroup
  template <class A>
  decltype(auto) fields(A& a) {
    return a(process, core_dump_filter, session_nice);
  }
};

struct TaskSettings {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "TaskSettings";
  std::vector<ThreadSettings> threads;
  std::vector<ProcessSettings> processes;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(threads, processes);
  }
};

Result<TaskSettings> settings_of(pid_t root);
// Applies the settings to a restored tree that is stopped. Returns remarks on settings that differ from those
// at the source: at most one for each kind of setting, each shorter than 1000 bytes.
Result<std::vector<std::string>> apply_settings(pid_t root, const TaskSettings& settings);

// Writes the settings into the image's folder at the source, after a dump. The function saved_settings()
// reads them at the target. The image of an older source has no settings.
Result<void> save_settings(pid_t root, const std::string& images);
Result<TaskSettings> saved_settings(const std::string& images);

}  // namespace ckpt::agent::host
