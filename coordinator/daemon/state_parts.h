// SPDX-License-Identifier: Apache-2.0
// The parts of the coordinator that have its state and change it: the tables over the store, the calls to
// nodes, and the migrations. They are constructed in the order of their dependencies.
// Threads: the thread that runs the executor. Ownership: owns its parts. Errors: those of the store.
#pragma once

#include <functional>
#include <string>

#include "coordinator/certificates/denied_certificates.h"
#include "coordinator/cluster/backups.h"
#include "coordinator/cluster/removed_nodes.h"
#include "coordinator/daemon/image_parts.h"
#include "coordinator/daemon/live_job_view.h"
#include "coordinator/gangs/moves/gang_commit_driver.h"
#include "coordinator/health/faults_by_findings.h"
#include "coordinator/migration/migration_runner.h"
#include "coordinator/operations/gang_rendezvous.h"
#include "coordinator/operations/job_states.h"
#include "coordinator/operations/order_sender.h"
#include "coordinator/operations/planner.h"
#include "coordinator/state/store_sync.h"

namespace ckpt::coordinator {

// Returns the path of the coordinator's store.
[[nodiscard]] std::string store_path(const Config& config);
// Returns the time limits and intervals of the commit protocols, as configured.
[[nodiscard]] migration::Timing timing_of(const Config& config);

struct Journals {
  migration::Journal handovers;
  gang::GangJournal gangs;  // the journal for moves of ranks
};

// The tables over the store, with the connections to nodes.
struct CoordinatorTables {
  CoordinatorTables(control::asio::any_io_executor on, Config settings, Store opened);
  CoordinatorTables(const CoordinatorTables&) = delete;
  CoordinatorTables& operator=(const CoordinatorTables&) = delete;

  control::asio::any_io_executor executor;
  Config config;
  Store store;
  StoreSync store_sync;
  EventLog events;
  CordonTable cordons;
  PolicyTable policy;
  MigrationTable migrations;
  JobTable jobs;
  NodeTable nodes;
  ImageCatalog catalog;
  LiveJobView job_view;
  JobRunner job_runner;
  JobAdmission admission;
  RemovedNodes removed_nodes;
  NodeFrames node_frames;
  NodeCalls node_calls;
  HealthTable health;
  FaultsByFindings faults;
  DeniedCertificates denied;
};

// The parts that hand over single ranks, and the classes that determine where jobs are and where they may
// move.
struct MigrationServices {
  MigrationServices(CoordinatorTables& tables, migration::Journal journal,
                    const std::function<void(const Error&)>& fatal);

  MigrationRunner runner;
  OrderSender orders;
  Backups backups;
  RunningSnapshots snapshots;
  JobStates states;
  Planner planner;
  GangRendezvous rendezvous;
};

// Returns references to those of these parts that the image classes use.
[[nodiscard]] ImageDependencies image_dependencies(CoordinatorTables& tables, MigrationServices& migrations);

}  // namespace ckpt::coordinator
