// SPDX-License-Identifier: Apache-2.0
// The parts of an agent that the two sides of a migration use, and the payloads that they exchange through
// the coordinator.
// Threads: the event loop. Ownership: the parts outlive the context, and the context outlives every session.
// All parts exist when the context is created.
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
#include "libckpt/protocol/handover/agent_handovers.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::agent {

struct MigrationContext {
  const Config& config;
  asio::any_io_executor executor;
  // The pool for work on host images and for reading processes. This work handles gigabytes, so the journal
  // has a separate thread.
  asio::thread_pool& images;
  JobTable& jobs;
  ContextHelper& contexts;
  RemapChoice& remap;
  std::shared_ptr<PauseMemory> pauses;
  GpuPort& gpus;
  HolderPort& holders;
  CoordinatorPort& reports;
};

// The payload of the target's Prepared. It contains the addresses of the target's mover, and the cost of each
// term of a pause at the target's node. Without costs, the target does not know them.
struct EndpointPayload {
  static constexpr std::uint8_t kVersion = 7, kCompat = 1;
  std::vector<std::string> addresses;
  std::vector<wire::CostLine> costs;  // cost lines by PauseTerm
  bool reads_memory_log = false;      // true if the target can receive host memory before the pause
                                      // (memory_index.h)
  bool restores_connections = false;  // true if the target restores a program's connections to itself
                                      // (connections.h)
  bool starts_programs = false;       // true if the target can start programs other than the job's own
                                      // (MigrateOptions::new_argv)
  std::uint64_t max_mappings = 0;     // limit of mappings for a process at the target (vm.max_map_count); 0
                                      // if unknown
  bool resets_connections = false;    // true if the target lets ended connections report a reset
                                      // (outer_connections.h)
  bool restores_namespaces = false;   // true if the target restores a job's own mount namespace
                                      // (mount_list.h)
  template <class A>
  decltype(auto) fields(A& a) {
    return a(addresses, costs, reads_memory_log, restores_connections, starts_programs, max_mappings,
             resets_connections, restores_namespaces);
  }
};

}  // namespace ckpt::agent
