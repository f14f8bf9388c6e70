// SPDX-License-Identifier: Apache-2.0
// What coordinator/images is made of, put together in the order of the dependencies: books of what is known,
// and on them the work.
// Threads: the thread that runs the executor. Ownership: its parts; borrows what it is given, which outlives
// it. Errors: those of the store.
#pragma once

#include "coordinator/fleet/job_admission.h"
#include "coordinator/images/image_removals.h"
#include "coordinator/images/operations/image_requests.h"
#include "coordinator/images/protections.h"

namespace ckpt::coordinator {

// What the rest of the coordinator gives to images.
struct ImageSurroundings {
  const Config& config;
  Store& store;
  EventLog& events;
  NodeTable& nodes;
  NodeCalls& calls;
  NodeFrames& frames;
  JobTable& jobs;
  JobAdmission& admission;
  JobLifecycle& lifecycle;
  const MigrationTable& migrations;
  const JobStates& states;
  const Planner& planner;
  Stops& stops;
  RunningSnapshots& running;
  control::asio::any_io_executor executor;
};

struct ImageBooks {
  ImageBooks(const ImageSurroundings& around, ImageCatalog::Recognised recognised);
  Result<void> load();

  ImageCatalog catalog;
  ImageNumbers numbers;
  ImageTasks tasks;
  ImageFinder finder;
  ImageReports reports;
};

struct ImageActs {
  ImageActs(const ImageSurroundings& around, ImageBooks& books);
  // Once, after everything has been loaded: takes up what was open.
  void start();

  VaultGrants grants;
  SnapshotOrders orders;
  Snapshots snapshots;
  Protections protections;
  ImageRemovals removals;
  OpenOperations open;
  OperationRecords records;
  OperationRunner runner;
  OperationCancels cancels;
  ImageRequests requests;
};

}  // namespace ckpt::coordinator
