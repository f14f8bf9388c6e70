// SPDX-License-Identifier: Apache-2.0
// The places where a job may run, according to the current tables. The planner describes the GPUs, the job
// and its needs to the placement policies, and returns their plan. Changes nothing.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors:
// kInvalidArgument; kNotFound for a node or GPU that does not exist; kRefused for a disconnected node;
// kNotSupported.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/fleet/cordons.h"
#include "coordinator/fleet/gpu_faults.h"
#include "coordinator/fleet/jobs.h"
#include "coordinator/operations/job_states.h"
#include "coordinator/policies/placement/gang_placement.h"
#include "coordinator/policies/placement/move_placement.h"
#include "coordinator/policies/placement/placement.h"
#include "coordinator/settings/config.h"

namespace ckpt::coordinator {

struct SubmitRequest {
  wire::JobSpec spec;  // the job's specification; id, incarnation, ranks and user are filled in
  std::optional<std::string> node;
  std::optional<std::uint32_t> gpu;
  GangShape gang;        // the number of ranks, and their nodes
  bool preempt = false;  // jobs of lower priority may be moved or parked for this job
};

// Facts that the tables lack: places that must take no job, and promised memory.
struct PlanHints {
  std::vector<std::pair<Scope, std::string>> closed;  // places that must take no job, with the reason
  PromisedMemory promised;
  std::string network;  // the network that a move must use; empty: any
};

// Parses "NODE" or "NODE:GPU". The GPU is nullopt if the text names none.
[[nodiscard]] Result<std::pair<std::string, std::optional<std::uint32_t>>> parse_place(
    const std::string& text);
// Checks that the node exists, is connected and has that GPU.
[[nodiscard]] Result<void> check_exists(const NodeTable& nodes, const std::string& node,
                                        std::optional<std::uint32_t> gpu);

class Planner {
 public:
  // The time for which a new coordinator expects nodes that have not connected yet.
  static constexpr std::chrono::seconds kReturnTime{60};
  struct Dependencies {
    const Config& config;
    const NodeTable& nodes;
    const JobTable& jobs;
    const MigrationTable& migrations;
    const CordonTable& cordons;
    const GpuFaults& faults;
    const JobStates& states;
  };
  explicit Planner(Dependencies deps) : deps_(deps) {}

  // Returns the plan of a move, possible or not. `to` is NODE, NODE:GPU or auto.
  [[nodiscard]] Result<MigratePlan> plan(const Job& job, const std::string& to,
                                         const PlanHints& hints = {}) const;
  // Returns where the job may continue from an image. An image in a node's own checkpoint store is only for
  // that node's GPUs. A job that runs releases its memory first.
  [[nodiscard]] Result<MigratePlan> plan_restore(const Job& job, const Image& image, const std::string& to,
                                                 const PlanHints& hints = {}) const;
  // Returns the plan of a start of all ranks, possible or not.
  [[nodiscard]] Result<GangPlan> plan(const SubmitRequest& request) const;

  // Returns the plan for all ranks of a job that continues from images. `nodes` has the nodes that `wanted`
  // and `shape` name.
  [[nodiscard]] Result<GangPlan> plan_gang(PlacementRequest wanted, const std::vector<std::string>& nodes,
                                           const GangShape& shape, const PlanHints& hints = {}) const;

  // Returns whether this coordinator was just started and does not have the inventories of all nodes yet.
  [[nodiscard]] bool nodes_may_come_back() const;
  [[nodiscard]] bool nodes_are_away() const;
  // These functions return the views of all GPUs, and the placement request for a move of the job.
  [[nodiscard]] std::vector<GpuView> gpu_views(const PlanHints& hints = {}) const;
  [[nodiscard]] PlacementRequest request_for(const Job& job, const std::vector<GpuView>& views) const;
  [[nodiscard]] static PlacementRequest request_for(const SubmitRequest& request);
  // Returns the placement request for a job that continues from the image.
  [[nodiscard]] PlacementRequest request_for(const Job& job, const Image& image) const;

 private:
  Result<void> name_target(PlacementRequest& wanted, const std::string& to) const;
  void count_migrations(GpuView& view) const;
  [[nodiscard]] std::string why_closed(const Place& place, const PlanHints& hints) const;
  [[nodiscard]] std::string why_suspect(const Place& place) const;
  [[nodiscard]] std::uint64_t promised_on(const Place& place) const;
  [[nodiscard]] std::uint64_t shown_bytes(const Job& job) const;

  Dependencies deps_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace ckpt::coordinator
