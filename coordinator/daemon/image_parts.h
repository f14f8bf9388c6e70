// SPDX-License-Identifier: Apache-2.0
// The parts of coordinator/images, constructed in the order of their dependencies: tables of images first,
// then the classes that work with them.
// Threads: the thread that runs the executor. Ownership: its parts; borrows ImageDependencies, which outlive
// it. Errors: those of the store.
#pragma once

#include "coordinator/fleet/job_admission.h"
#include "coordinator/images/image_removals.h"
#include "coordinator/images/operations/image_requests.h"
#include "coordinator/images/protections.h"

namespace ckpt::coordinator {

// The other parts of the coordinator that images use.
struct ImageDependencies {
  const Config& config;
  Store& store;
  EventLog& events;
  NodeTable& nodes;
  NodeCalls& calls;
  NodeFrames& frames;
  JobTable& jobs;
  JobRunner& job_runner;
  const lifecycle::JobView& view;
  JobAdmission& admission;
  ImageCatalog& catalog;
  const MigrationTable& migrations;
  const JobStates& states;
  const Planner& planner;
  OrderSender& orders;
  RunningSnapshots& running;
  const GangRendezvous& rendezvous;
  control::asio::any_io_executor executor;
};

struct ImageTables {
  explicit ImageTables(const ImageDependencies& deps);
  Result<void> load();

  ImageCatalog& catalog;
  ImageNumbers numbers;
  ImageTasks tasks;
  ImageFinder finder;
  ImageReports reports;
};

struct ImageServices {
  ImageServices(const ImageDependencies& deps, ImageTables& tables);
  // Once, after everything has been loaded: continues open operations.
  void start();

  VaultGrants grants;
  SnapshotOrders orders;
  Snapshots snapshots;
  Protections protections;
  ImageRemovals removals;
  OpenOperations open;
  OperationRunner runner;
  OperationCancels cancels;
  RestorePlans restores;
  ImageRequests requests;
};

}  // namespace ckpt::coordinator
