// SPDX-License-Identifier: Apache-2.0
// The files between agent and keeper in an instance's folder. keeper.json, written here, describes the
// program to start. status.json, written by the keeper and read when it is gone, has the end of the rank.
// Threads: pure. Errors: kIo; a status file that is absent or damaged gives nothing.
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

// A process that a keeper takes from an image instead of starting one (agent/keeper/settings/config.h).
struct HostRestore {
  std::vector<std::string> command;
  std::string pid_file;
  std::string criu_log;
  std::chrono::milliseconds timeout{60000};
  // Brings its memory while it runs already (agent/keeper/init/lazy_pages.h); empty: it comes with the
  // process.
  std::vector<std::string> lazy_pages;
  std::string lazy_pages_pid_file;
  std::vector<std::int32_t>
      stopped;  // processes that the program had stopped itself, by their ids in its namespace
};

// The job's own environment, with this node's additions and the GPU that the rank is to see.
[[nodiscard]] std::string keeper_config(const JobRecord& record, const Config& config,
                                        const HostRestore* restore = nullptr);
Result<void> write_keeper_config(const std::string& folder, const JobRecord& record, const Config& config,
                                 const HostRestore* restore = nullptr);

// The status of a process whose end only its own parent can know (agent/keeper/rank/adopted_process.h).
inline constexpr std::int32_t kUnknownStatus = -1;

inline constexpr std::size_t kMaxStatusBytes = 64 << 10;  // of status.json

struct KeeperStatus {
  bool exited = false;
  std::int32_t wait_status = 0;
  bool ended_by_keeper = false;
  bool ran = false;                   // it was resumed, as `incarnation`; false in files of older keepers
  wire::Incarnation incarnation = 0;  // 0: not reported
  // The program could not be started: its status (libckpt/base/program_error.h), and why. 0 otherwise.
  std::int32_t program_status = 0;
  std::string program_error;
};
[[nodiscard]] std::optional<KeeperStatus> read_keeper_status(const std::string& folder);

}  // namespace ckpt::agent
