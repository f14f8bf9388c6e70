// SPDX-License-Identifier: Apache-2.0
// Settings of threads and processes that CRIU does not save. A thread has the processors that it may run on,
// its I/O priority and its timer slack; a process has what its core dumps hold. Only what differs from a
// thread that this agent starts is noted. A restored thread gets those of its processors that the target has.
// If it had all of the source's, it gets all of the target's.
// Threads: any; reads files under /proc (offload()). Errors: kCorrupt for malformed bytes; kIo. A setting
// that the target refuses is logged, and the program goes on without it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxTaskSettings = 1u << 20;
inline constexpr std::size_t kMaxProcessorWords = 128;  // of 64 processors each

struct ThreadSettings {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "ThreadSettings";
  std::uint32_t thread = 0;               // in its own PID namespace
  std::vector<std::uint64_t> processors;  // a bit each; empty: as the agent's
  bool all_processors = false;            // it may run on all of the node's
  std::uint32_t io_priority = 0;          // ioprio_get(2); 0: none
  std::uint64_t timer_slack_ns = 0;       // 0: the usual one
  template <class A>
  decltype(auto) fields(A& a) {
    return a(thread, processors, all_processors, io_priority, timer_slack_ns);
  }
  friend bool operator==(const ThreadSettings&, const ThreadSettings&) = default;
};

struct ProcessSettings {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "ProcessSettings";
  std::uint32_t process = 0;  // in its own PID namespace
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
// Applies them to a tree that was restored and is stopped.
Result<void> apply_settings(pid_t root, const TaskSettings& settings);

// Write and read the settings in the image's folder: at the source after a dump, and at the target. An older
// source saves none.
Result<void> save_settings(pid_t root, const std::string& images);
Result<TaskSettings> saved_settings(const std::string& images);

}  // namespace ckpt::agent::host
