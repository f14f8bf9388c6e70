// SPDX-License-Identifier: Apache-2.0
// The parts of the coordinator that act on its state: moves, maintenance, the sessions of nodes, and the
// sections of the API. They are constructed in the order of their dependencies.
// Threads: the thread that runs the executor. Ownership: owns its parts; borrows the parts that are given at
// construction, which outlive it. Errors: those of the store and of the journal.
#pragma once

#include <functional>
#include <string>

#include "coordinator/api/health_section.h"
#include "coordinator/api/image_api.h"
#include "coordinator/api/job_section.h"
#include "coordinator/api/maintenance_section.h"
#include "coordinator/api/migration_section.h"
#include "coordinator/certificates/certificate_renewals.h"
#include "coordinator/cluster/housekeeping.h"
#include "coordinator/cluster/node_joins.h"
#include "coordinator/cluster/node_removals.h"
#include "coordinator/cluster/recovery.h"
#include "coordinator/daemon/node_events.h"
#include "coordinator/daemon/state_parts.h"
#include "coordinator/gangs/moves/job_moves.h"
#include "coordinator/maintenance/overcommit.h"
#include "coordinator/maintenance/rebalance.h"
#include "coordinator/maintenance/resumes.h"
#include "coordinator/operations/metrics.h"
#include "coordinator/operations/moves.h"
#include "coordinator/operations/service.h"
#include "coordinator/output/log_reader.h"
#include "coordinator/output/output_copier.h"

namespace ckpt::coordinator {

// The parts that the services of this file use.
struct CoreParts {
  CoordinatorTables& tables;
  MigrationServices& migrations;
  ImageTables& image_tables;
  ImageServices& images;
};

// The parts that move jobs, start them and copy their output.
struct MoveServices {
  MoveServices(const CoreParts& core, gang::GangJournal journal, const std::string& peer_token,
               const std::function<void(const Error&)>& fatal);

  Moves moves;
  Overcommit overcommit;
  Resumes resumes;
  Service service;
  OutputCopies output_copies;
  OutputCopier output_copier;
  LogReader logs;
  GangMoves gang_moves;
  JobMoves job_moves;
  Recovery recovery;
};

// The parts that drain places and evacuate jobs. `fallback` takes the images of jobs that cannot move.
struct MaintenanceServices {
  MaintenanceServices(const CoreParts& core, MoveServices& moves, Images& fallback);

  DrainTable drain_table;
  Drains drains;
  EvacuationTable evacuation_table;
  Evacuations evacuations;
};

// The parts that handle the connections to agents and remove nodes.
struct NodeServices {
  NodeServices(const CoreParts& core, MoveServices& moves, MaintenanceServices& maintenance,
               const std::string& peer_token);

  NodeEvents events;
  NodeSessions sessions;
  NodeRemovals removals;
};

// The sections of the API, which borrow the other parts, and the parts for metrics and periodic work.
struct ApiServices {
  ApiServices(const CoreParts& core, MoveServices& moves, MaintenanceServices& maintenance_parts);

  ImageApi images;
  JobSection jobs;
  MigrationSection migrations;
  MaintenanceSection maintenance;
  HealthSection health;
  Metrics metrics;
  Rebalancer rebalancer;
  Housekeeping housekeeping;
  CertificateRenewals renewals;
  NodeJoins joins;
};

}  // namespace ckpt::coordinator
