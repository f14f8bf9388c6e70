// SPDX-License-Identifier: Apache-2.0
// The parts of coordinator/images and coordinator/gangs that handle images, constructed in the order of their
// dependencies. The tables of images come first, and then the classes that use them.
// Threads: the thread that runs the executor. Ownership: owns its parts; borrows ImageDependencies, which
// outlive it. Errors: those of the store.
#pragma once

#include "coordinator/fleet/job_admission.h"
#include "coordinator/gangs/protections.h"
#include "coordinator/images/image_removals.h"
#include "coordinator/images/operations/image_requests.h"

namespace ckpt::coordinator {

// The other parts of the coordinator that the image classes use.
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
  // Continues open operations. Call this once, after everything has been loaded.
  void start();

  CheckpointStoreGrants grants;
  SnapshotOrders orders;
  Snapshots snapshots;
  ImageRemovals removals;
  OpenOperations open;
  OperationRunner runner;
  OperationCancels cancels;
  RestorePlans restores;
  ImageRequests requests;
  GangImages gang_images;
  GangRestores gang_restores;
  JobImages job_images;
  Protections protections;
};

}  // namespace ckpt::coordinator
