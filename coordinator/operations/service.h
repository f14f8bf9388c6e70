// SPDX-License-Identifier: Apache-2.0
// What the API asks for, in terms of the tables: submit, stop, wait, read logs, plan and begin migrations.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors:
// kInvalidArgument, kNotFound, kRefused, kNotSupported (nothing was touched), kUnavailable (a node is away).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/fleet/cordons.h"
#include "coordinator/migration/migrations.h"
#include "coordinator/operations/stops.h"
#include "coordinator/placement/placement.h"
#include "coordinator/settings/config.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::coordinator {

// The downtime that a move aims at if nobody names another.
inline constexpr std::int64_t kDefaultMaxDowntimeNs = 200'000'000;

struct SubmitRequest {
  SubmitRequest() = default;
  wire::JobSpec spec;  // id, incarnation, ranks and user are filled in
  std::optional<std::string> node;
  std::optional<std::uint32_t> gpu;
  std::uint32_t gpus = 1;
  bool preempt = false;  // jobs of lower priority may be parked for it
};

// A process that runs already becomes a job.
struct AdoptRequest {
  AdoptRequest() = default;
  std::int32_t pid = 0;
  std::string name;
  std::optional<std::string> node;
  std::string machine;            // boot id of the machine that counts so; empty: the node's
  std::uint64_t start_ticks = 0;  // 0: whichever process has the id
};

struct MigrateRequest {
  MigrateRequest() = default;
  std::string to = "auto";  // NODE, NODE:GPU or auto
  wire::MigrateOptions options;
  std::int64_t timeout_ms = 0;
  std::string why;
};

// What the tables do not know: places that shall take nothing, and memory that is spoken for.
struct PlanHints {
  PlanHints() = default;
  std::vector<std::pair<Scope, std::string>> closed;      // with the reason
  std::vector<std::pair<Place, std::uint64_t>> promised;  // a job each
};

struct MigratePlan {
  MigratePlan() = default;
  std::optional<Place> to;
  std::string reason;    // why it is not possible
  bool passing = false;  // not possible, but it may be once something ends, starts or comes back
  std::vector<Candidate> candidates;
};

struct LogChunk {
  LogChunk() = default;
  std::string bytes;
  std::uint64_t next_offset = 0;
  bool ended = false;
};

class Service {
 public:
  // For so long a new coordinator expects nodes that have not reported yet.
  static constexpr std::chrono::seconds kReturnTime{60};
  using Deadline = std::chrono::steady_clock::time_point;
  struct Parts {
    const Config& config;
    NodeTable& nodes;
    JobTable& jobs;
    MigrationTable& migrations;
    const CordonTable& cordons;
    std::string peer_token;
    Stops& stops;
  };
  explicit Service(Parts parts) : parts_(std::move(parts)) {}

  // Asked before a job is placed that may have others parked for it; set before the API listens.
  void set_room_maker(std::function<control::Task<Result<void>>(SubmitRequest)> make_room) {
    make_room_ = std::move(make_room);
  }

  // What is under way with a job's images, and gives way to other orders; set before the API listens.
  struct ImageWork {
    std::function<bool(JobId)> is_stored;
    std::function<bool(JobId, const std::string& why)> give_up;
    std::function<Result<bool>(JobId, std::int64_t grace_ms)> stop;
  };
  void set_image_work(ImageWork work) { image_work_ = std::move(work); }
  // Of a job that is on its way into an image although `plan` has a place for it: true if that is being given
  // up.
  bool give_up_parking(const Job& job, const MigratePlan& plan, const std::string& why);
  bool give_up_parking(const Job& job, const std::string& why);

  control::Task<Result<Job*>> submit(SubmitRequest request);
  // adopt.cc. Without a node every connected one is asked whose machine it is.
  control::Task<Result<Job*>> adopt(AdoptRequest request);
  // Sends StartJob for a job that is stored as starting (at first, or again after the node came back).
  control::Task<> start(JobId id);
  // Recorded, then carried out until nothing of the job lives; a job whose node is away ends here at once.
  Result<void> stop(Job& job, std::int64_t grace_ms);
  control::Task<> wait_for_end(JobId id, Deadline deadline);
  control::Task<Result<LogChunk>> read_log(JobId id, std::uint64_t offset, std::uint32_t limit,
                                           Deadline deadline);

  // kNotFound for a node or GPU that does not exist; otherwise a plan, possible or not.
  Result<MigratePlan> plan(const Job& job, const std::string& to, const PlanHints& hints = {});
  // Where the job may go on from an image. An image in a node's own vault is for that node's GPUs; a job that
  // runs gives its memory back first.
  Result<MigratePlan> plan_restore(const Job& job, const Image& image, const std::string& to,
                                   const PlanHints& hints = {});
  Result<MigratePlan> plan(const SubmitRequest& request) const;  // `to`: where it would be started
  // Begins what plan() found possible. At once: without the waiting of migrate().
  Result<Migration*> begin(const Job& job, const MigrateRequest& request, const MigratePlan& plan);
  // Waits a while for what is about to be possible: a job that is still starting, and memory that is being
  // freed while the nodes have not said so yet.
  control::Task<Result<Migration*>> migrate(JobId id, MigrateRequest request);

  // This coordinator has just been started, and does not know yet what some nodes have.
  [[nodiscard]] bool nodes_may_come_back() const;
  [[nodiscard]] bool nodes_are_away() const;
  [[nodiscard]] std::string job_state(const Job& job) const;
  // Empty, or why it cannot be moved now.
  [[nodiscard]] std::string why_not_movable(const Job& job) const;
  // Of all GPUs, and what moving that job asks of them.
  [[nodiscard]] std::vector<GpuView> gpu_views(const PlanHints& hints = {}) const;
  [[nodiscard]] PlacementRequest request_for(const Job& job, const std::vector<GpuView>& views) const;
  [[nodiscard]] static PlacementRequest request_for(const SubmitRequest& request);
  // Of a job that goes on from that image.
  [[nodiscard]] PlacementRequest request_for(const Job& job, const Image& image) const;

 private:
  void count_migrations(GpuView& view) const;
  // Of a job that is not movable now: whether that is of its own making and will stay.
  [[nodiscard]] bool is_lasting(const Job& job) const;
  [[nodiscard]] bool may_be_possible_soon(const Job& job) const;
  [[nodiscard]] std::string why_closed(const Place& place, const PlanHints& hints) const;
  [[nodiscard]] std::uint64_t promised_on(const Place& place) const;
  [[nodiscard]] std::uint64_t shown_bytes(const Job& job) const;
  Result<void> check_exists(const std::string& node, std::optional<std::uint32_t> gpu) const;
  control::Task<Result<Job*>> start_or_explain(JobId id);
  Result<wire::MigrationPlan> make_plan(const Job& job, const Place& to,
                                        const wire::MigrateOptions& options) const;

  Parts parts_;
  std::function<control::Task<Result<void>>(SubmitRequest)> make_room_;
  ImageWork image_work_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace ckpt::coordinator
