// SPDX-License-Identifier: Apache-2.0
// The parts of an agent that the two sides of a migration use, and the payloads that they exchange through
// the coordinator.
// Threads: the event loop; the context outlives every session.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/context_helper/context_helper.h"
#include "agent/gpus/gpu_identity.h"
#include "agent/gpus/remap.h"
#include "agent/jobs/job_table.h"
#include "agent/mover_client/mover_process.h"
#include "agent/pauses/pause_memory.h"
#include "agent/settings/config.h"
#include "libckpt/protocol/handover/agent_switches.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::agent {

struct MigrationContext {
  const Config& config;
  asio::any_io_executor executor;
  // Runs work on host images and reads of processes. That is gigabytes, so the journal has a thread of its
  // own.
  asio::thread_pool& images;
  JobTable& jobs;
  // The identity of a GPU of this node; kNotFound if the node has no such GPU.
  std::function<Result<local::GpuIdentity>(std::uint32_t gpu)> identity_of;
  ContextHelper& contexts;
  RemapChoice& remap;
  // The mover of a GPU; kNotFound if the node has no such GPU.
  std::function<Result<std::shared_ptr<MoverProcess>>(std::uint32_t gpu)> mover_of;
  std::function<void(migration::SwitchKey, migration::SourceEvent)> source_event;
  std::function<void(migration::SwitchKey, migration::TargetEvent)> target_event;
  // Sends to the coordinator on a best-effort basis.
  std::function<void(const wire::MigrationProgress&)> progress;
  // Returns once nothing else has the job: a snapshot ends. May be empty.
  std::function<Task<>(wire::JobId)> acquire_exclusive = {};
  // Gives a transparent job that is paused without a migration its context and memory back. May be empty.
  std::function<Task<Result<void>>(std::shared_ptr<Job>)> resume_in_place = {};
  std::shared_ptr<PauseMemory> pauses = {};
  // Checks that this node may run the job of a plan. May be empty.
  std::function<Result<void>(const wire::JobSpec&)> check_spec = {};
  // Returns the GPU memory of a process by the driver's last answer; 0: it names no such process. May be
  // empty.
  std::function<std::uint64_t(pid_t)> device_bytes_of = {};
  // Sends to the coordinator on a best-effort basis, also once the migration is over. May be empty.
  std::function<void(const wire::TargetReport&)> late_report = {};
};

// The payload of the target's Prepared: the addresses of its mover, and the costs of a pause's terms at its
// node (none: it does not know).
struct EndpointPayload {
  static constexpr std::uint8_t kVersion = 6, kCompat = 1;
  std::vector<std::string> addresses;
  std::vector<wire::CostLine> costs;  // by PauseTerm
  bool reads_memory_log = false;      // host memory may come ahead of the pause (memory_index.h)
  bool restores_connections = false;  // of a program to itself (connections.h)
  bool starts_programs = false;       // other than the job's own (MigrateOptions::new_argv)
  std::uint64_t max_mappings = 0;     // of a process there (vm.max_map_count); 0: not known
  template <class A>
  decltype(auto) fields(A& a) {
    return a(addresses, costs, reads_memory_log, restores_connections, starts_programs, max_mappings);
  }
};

}  // namespace ckpt::agent
