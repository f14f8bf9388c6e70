// SPDX-License-Identifier: Apache-2.0
// Records that a job is to be stopped (Job::stop_requested) and carries it out, until nothing of the job
// lives any more. An open migration is aborted, and the side that owns the job then is ordered to end. Every
// living instance gets the order once on each connection, also those of a job that has ended here already. A
// node that shows none, and may have one, is asked (instance_ends.h).
//
// Between a migration's barrier and its end no side is ordered to end that may not own the job. A paused side
// that ended would leave the other without a way back. A side that runs alone, since the other one is away,
// is told.
// Threads: one io_context on one thread. Ownership: borrows the tables. Errors: the store's; what
// cannot be sent now is sent at the next connection.
#pragma once

#include <set>
#include <string>
#include <tuple>

#include "coordinator/fleet/instance_ends.h"
#include "coordinator/migration/migration_runner.h"

namespace ckpt::coordinator {

class Stops {
 public:
  struct Parts {
    NodeTable& nodes;
    NodeCalls& calls;
    JobTable& jobs;
    JobLifecycle& lifecycle;
    InstanceEnds& ends;
    MigrationTable& migrations;
    MigrationRunner& migration_runner;
    control::asio::any_io_executor executor;
  };
  explicit Stops(Parts parts);
  Stops(const Stops&) = delete;
  Stops& operator=(const Stops&) = delete;

  // A job without an operation on its images. Where its node is away the order stands, and the job has not ended
  // before that node reports it. Again: with the new grace.
  Result<void> begin(Job& job, std::int64_t grace_ms);
  void on_inventory(const Node& node);
  void on_instance(const wire::JobInstance& instance);
  void on_lost(const Node& node);

 private:
  using Told = std::tuple<std::string, JobId, Incarnation>;

  // Something of the job has changed: it is carried out later, on the loop.
  void carry_out_later(JobId id);
  void carry_out(JobId id);
  // The node of the open migration's side that runs while the other side is away; empty: no
  // node is told yet.
  [[nodiscard]] std::string alone_on(const Migration& open) const;
  // The open migration of the job, or of a rank that it moves with; null: there is none.
  [[nodiscard]] const Migration* open_of(const Job& job) const;
  void abort(const Migration& open);
  void tell(const Node& node, const Job& job);

  Parts parts_;
  std::set<Told> told_;
  std::set<MigrationId> aborted_;  // by this coordinator
};

}  // namespace ckpt::coordinator
