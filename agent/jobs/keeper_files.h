// SPDX-License-Identifier: Apache-2.0
// The files between agent and keeper in an instance's folder. The agent writes keeper.json, which describes
// the program to start. The keeper writes status.json, which records the exit of the rank. The agent reads
// status.json after the keeper has exited.
// Threads: any. Errors: kIo. A status file that is missing or damaged yields no value.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/jobs/job_record.h"
#include "agent/settings/config.h"

namespace ckpt::agent {

// A process that a keeper restores from an image instead of starting one (agent/keeper/settings/config.h).
struct HostRestore {
  std::vector<std::string> command;
  std::string pid_file;
  std::string criu_log;
  std::chrono::milliseconds timeout{60000};
  // The command that transfers the process's memory while the process already runs
  // (agent/keeper/init/lazy_pages.h). Without a command, all memory is restored before the process runs.
  std::vector<std::string> lazy_pages;
  std::string lazy_pages_pid_file;
  std::vector<std::int32_t>
      stopped;  // processes that the program had stopped itself, by their ids in the program's namespace
};

// Returns the content of keeper.json. The environment is the job's own, with this node's additions and the
// GPU that the rank may see.
[[nodiscard]] std::string keeper_config(const JobRecord& record, const Config& config,
                                        const HostRestore* restore = nullptr);
Result<void> write_keeper_config(const std::string& folder, const JobRecord& record, const Config& config,
                                 const HostRestore* restore = nullptr);

// The value for the wait status of a process whose exit is visible only to its own parent
// (agent/keeper/rank/adopted_process.h).
inline constexpr std::int32_t kUnknownStatus = -1;

inline constexpr std::size_t kMaxStatusBytes = 64 << 10;  // limit for the size of status.json

struct KeeperStatus {
  bool exited = false;
  std::int32_t wait_status = 0;
  bool ended_by_keeper = false;
  bool ran = false;  // true if the rank was resumed as `incarnation`; false in files of older keepers
  wire::Incarnation incarnation = 0;  // incarnation of the rank; 0 if not reported
  // The status (libckpt/base/program_error.h) and the reason if the program could not be started. Otherwise
  // the status is 0.
  std::int32_t program_status = 0;
  std::string program_error;
};
[[nodiscard]] std::optional<KeeperStatus> read_keeper_status(const std::string& folder);

}  // namespace ckpt::agent
