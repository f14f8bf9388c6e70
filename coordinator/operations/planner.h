// SPDX-License-Identifier: Apache-2.0
// Where a job may go as the tables are now. The planner describes the GPUs and the job's needs to placement,
// and returns its plan. Changes nothing.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors:
// kInvalidArgument, kNotFound for a node or GPU that does not exist, kRefused for a node that is not
// connected, kNotSupported.
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
#include "coordinator/policies/placement/placement.h"
#include "coordinator/settings/config.h"

namespace ckpt::coordinator {

struct SubmitRequest {
  wire::JobSpec spec;  // id, incarnation, ranks and user are filled in
  std::optional<std::string> node;
  std::optional<std::uint32_t> gpu;
  GangShape gang;        // of one rank: an ordinary job
  bool preempt = false;  // jobs of lower priority may be parked for it
};

// Facts that the tables do not have: places that shall take no job, and promised memory.
struct PlanHints {
  std::vector<std::pair<Scope, std::string>> closed;      // with the reason
  std::vector<std::pair<Place, std::uint64_t>> promised;  // a job each
  std::string network;                                    // a move goes over this one; empty: any
};

struct MigratePlan {
  std::optional<Place> to;
  std::string reason;    // why it is not possible
  bool passing = false;  // not possible, but it may be once something ends, starts or comes back
  bool no_gpu = false;   // not possible, since none of the candidates will do
  std::vector<Candidate> candidates;
  std::vector<std::string> warnings;  // of a dry run
};

// "NODE" or "NODE:GPU".
[[nodiscard]] Result<std::pair<std::string, std::optional<std::uint32_t>>> parse_place(
    const std::string& text);
// The node is there and connected, and has that GPU.
[[nodiscard]] Result<void> check_exists(const NodeTable& nodes, const std::string& node,
                                        std::optional<std::uint32_t> gpu);

class Planner {
 public:
  // For so long a new coordinator expects nodes that have not connected yet.
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

  // A move: a plan, possible or not. `to`: NODE, NODE:GPU or auto.
  [[nodiscard]] Result<MigratePlan> plan(const Job& job, const std::string& to,
                                         const PlanHints& hints = {}) const;
  // Where the job may go on from an image. An image in a node's own vault is for that node's GPUs; a job that
  // runs gives its memory back first.
  [[nodiscard]] Result<MigratePlan> plan_restore(const Job& job, const Image& image, const std::string& to,
                                                 const PlanHints& hints = {}) const;
  // `to`: where it would be started.
  [[nodiscard]] Result<MigratePlan> plan(const SubmitRequest& request) const;

  // For all ranks of a job, on one node.
  [[nodiscard]] Result<GangPlan> plan_gang(const SubmitRequest& request) const;

  // For all ranks of a job that goes on from images. `nodes`: those that `wanted` and `shape` name.
  [[nodiscard]] Result<GangPlan> plan_gang(PlacementRequest wanted, const std::vector<std::string>& nodes,
                                           const GangShape& shape, const PlanHints& hints = {}) const;

  // This coordinator has just been started, and does not have the inventories of all nodes yet.
  [[nodiscard]] bool nodes_may_come_back() const;
  [[nodiscard]] bool nodes_are_away() const;
  // The views of all GPUs, and the placement request for moving that job.
  [[nodiscard]] std::vector<GpuView> gpu_views(const PlanHints& hints = {}) const;
  [[nodiscard]] PlacementRequest request_for(const Job& job, const std::vector<GpuView>& views) const;
  [[nodiscard]] static PlacementRequest request_for(const SubmitRequest& request);
  // The placement request for a job that goes on from that image.
  [[nodiscard]] PlacementRequest request_for(const Job& job, const Image& image) const;

 private:
  void count_migrations(GpuView& view) const;
  [[nodiscard]] std::string why_closed(const Place& place, const PlanHints& hints) const;
  [[nodiscard]] std::string why_suspect(const Place& place) const;
  [[nodiscard]] std::uint64_t promised_on(const Place& place) const;
  [[nodiscard]] std::uint64_t shown_bytes(const Job& job) const;

  Dependencies deps_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace ckpt::coordinator
