// SPDX-License-Identifier: Apache-2.0
// Settings of threads and processes that CRIU does not save. For a thread, these are its allowed processors,
// its I/O priority and its timer slack. For a process, the setting is the content of its core dumps. Only
// settings are recorded that differ from those of a thread that this agent starts. A restored thread may run
// on those of its former processors that the target also has. If the thread had all processors of the source,
// it gets all processors of the target.
// Threads: any. The functions read files under /proc (use offload()). Errors: kCorrupt for malformed bytes.
// kIo. A setting that the target refuses is logged, and the program continues without the setting.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxTaskSettings = 1u << 20;
inline constexpr std::size_t kMaxProcessorWords = 128;  // maximum number of words, each for 64 processors

struct ThreadSettings {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "ThreadSettings";
  std::uint32_t thread = 0;               // id of the thread or process in its own PID namespace
  std::vector<std::uint64_t> processors;  // processors with one bit each; empty means the agent's processors
  bool all_processors = false;            // true if the thread may run on all processors of the node
  std::uint32_t io_priority = 0;          // value of ioprio_get(2); 0 means none
  std::uint64_t timer_slack_ns = 0;       // timer slack; 0 means the usual value
  template <class A>
  decltype(auto) fields(A& a) {
    return a(thread, processors, all_processors, io_priority, timer_slack_ns);
  }
  friend bool operator==(const ThreadSettings&, const ThreadSettings&) = default;
};

struct ProcessSettings {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "ProcessSettings";
  std::uint32_t process = 0;  // id of the thread or process in its own PID namespace
  std::uint32_t core_dump_filter = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(process, core_dump_filter);
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
// Applies the settings to a restored tree that is stopped.
Result<void> apply_settings(pid_t root, const TaskSettings& settings);

// Writes or reads the settings in the image's folder. The source writes them after a dump, and the target
// reads them. An older source saves no settings.
Result<void> save_settings(pid_t root, const std::string& images);
Result<TaskSettings> saved_settings(const std::string& images);

}  // namespace ckpt::agent::host
