// SPDX-License-Identifier: Apache-2.0
// The parts of an agent that the two sides of a migration use, and the payloads that they exchange through
// the coordinator.
// Threads: the event loop. Ownership: the parts outlive the context, and the context every session. All parts
// are there when it is made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/context_helper/context_helper.h"
#include "agent/gpus/remap.h"
#include "agent/jobs/job_table.h"
#include "agent/migration/ports/coordinator_port.h"
#include "agent/migration/ports/gpu_port.h"
#include "agent/migration/ports/holder_port.h"
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
  ContextHelper& contexts;
  RemapChoice& remap;
  std::shared_ptr<PauseMemory> pauses;
  GpuPort& gpus;
  HolderPort& holders;
  CoordinatorPort& reports;
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
