// SPDX-License-Identifier: Apache-2.0
// The job table: what was submitted, which instance of it runs, how it ended. Fed by agents' inventories and
// by the outcome of migrations; survives a restart through the store.
//
// While a migration of a job, or an operation on its images, is open, that alone judges the events of its
// instances. The end of an instance ends the job only once it is closed.
//
// Questions about all jobs visit those that are not over (live()). Names and ended jobs have indexes of their
// own. So an operation does not cost more the more jobs there once were. What jobs hold by the minute is
// stored by store_memory(), for all at once.
// Threads: one io_context on one thread. Ownership: jobs live here; pointers are valid until forget_old().
// Errors: create() refuses what cannot be stored; later failures of the store are logged (memory is what
// counts).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "coordinator/fleet/migration_queries.h"
#include "coordinator/fleet/nodes.h"
#include "coordinator/state/event_log.h"
#include "coordinator/state/retention.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {

class JobTable {
 public:
  JobTable(Store& store, EventLog& events, const MigrationQueries& migrations,
           control::asio::any_io_executor executor)
      : store_(store), events_(events), migrations_(migrations), changed_(std::move(executor)) {}

  Result<void> load();

  // A new job on `place`, stored as starting. An empty name is made up. kRefused if a live job has the name.
  Result<Job*> create(wire::JobSpec spec, const Place& place, std::string placed);
  // A job that was forgotten, from what an image says of it: a new one, parked as of then, without anything
  // that ever ran. kRefused as create().
  Result<Job*> revive(wire::JobSpec spec, const Place& place, const std::string& image,
                      std::int64_t as_of_ms);
  // A job that an agent runs (or has ended) and this store does not know: as `spec` says and `instance` is. A
  // name that a live job has is made longer. kInvalidArgument for a spec that no job has.
  Result<Job*> take_in(wire::JobSpec spec, const Node& node, const wire::JobInstance& instance);
  // The store is an older copy: the job runs as a later incarnation than is known here. Or it was given up,
  // and runs all the same. A name that a live job has is made longer.
  void go_on_at(JobId id, const Node& node, const wire::JobInstance& instance);
  // A lost job runs on at a node that was taken out of the cluster.
  void runs_unmanaged(JobId id, const std::string& node, Incarnation incarnation);
  // Its node says that it went on elsewhere, and no node has it.
  void lose_left(JobId id);
  // A job of which nothing ever ran is not there any more.
  void drop(JobId id);
  void started(Job& job);
  void failed_to_start(Job& job, const Error& reason);
  // Durable before it counts.
  Result<void> stop_requested(Job& job, std::int64_t grace_ms);
  // Its node is away: it ends here, and its name is free. What lives of it is ended when the node comes back.
  void stop_away(Job& job);
  // Its node was taken out. `unfenced`: nobody has said that nothing of it runs there.
  void lose(JobId id, bool unfenced);
  // It is not parked. Where its instance has left for its image all the same, it ends here: as `stopped`,
  // else it is lost.
  void not_parked(JobId id, const Node* node, bool stopped);
  // Nothing is open any more: whether its node, which said what it has, has nothing left of a job that was
  // stopped while it was away.
  void settle_stop(JobId id, const Node* node);

  // Id or name; of several ended jobs with the name the newest. Of an id the tag may be left out where one
  // job has the number.
  [[nodiscard]] Job* find(std::string_view id_or_name);
  // What find() says where it finds none.
  [[nodiscard]] Error not_found(std::string_view id_or_name) const;
  [[nodiscard]] Job* find(JobId id);
  // For listings; what it and live() hand out is counted.
  [[nodiscard]] std::map<JobId, Job>& all() {
    visited_ += jobs_.size();
    return jobs_;
  }
  // Those that have not ended, or are about to come back from an image; by id, as of now.
  [[nodiscard]] std::vector<std::reference_wrapper<Job>> live() const;
  // Those that are to end and have not, or may live on a node that is away; by id, as of now.
  [[nodiscard]] std::vector<JobId> to_be_stopped() const;
  [[nodiscard]] std::size_t ended_count() const { return ended_.size(); }
  [[nodiscard]] std::int64_t newest_end_ms() const { return newest_end_ms_; }  // 0: none has ended yet
  [[nodiscard]] std::uint64_t visited() const { return visited_; }
  [[nodiscard]] unsigned live_on(const std::string& node) const;
  [[nodiscard]] unsigned live_on(const Place& place) const;

  // All instances of a node: starting jobs that are missing are returned, to be started again (StartJob is
  // idempotent); running ones that are missing are lost.
  std::vector<JobId> take_inventory(const Node& node);
  void take_instance(const Node& node, const wire::JobInstance& instance);
  void node_changed() { changed_.notify(); }

  // The job runs on as incarnation k of the instance `segment`, at `places` (by rank).
  void runs_at(JobId id, Incarnation k, const Segment& segment, const std::vector<JobRank>& ranks,
               const Node* node);
  // Looks again at the current instance, after a migration has been closed.
  void reconsider(JobId id, const Node* node);
  void set_downtime(JobId id, double downtime_ms, std::optional<wire::PauseFacts> pause);
  // A job as an operation on its images changes it: durable before it counts, or an error and nothing has
  // changed.
  Result<void> replace(Job changed);
  // `stop` of a parked job: nothing of it runs.
  void stop_parked(Job& job);

  // Removes some of the ended jobs that need not stay, the oldest first; their ids, for their nodes to
  // forget, too.
  std::vector<JobId> forget_old(const Retention& keep);
  // What was learnt of jobs' memory since the last call, in one transaction.
  Result<void> store_memory();
  // Of this cluster, and removed.
  [[nodiscard]] bool was_forgotten(JobId id) const { return store_.gave(id) && !jobs_.contains(id); }

  [[nodiscard]] Signal& changed() { return changed_; }

 private:
  [[nodiscard]] bool judged_elsewhere(const Job& job) const {
    return job.operation.has_value() || migrations_.has_open(job.id);
  }
  void judge(Job& job, const wire::JobInstance& instance);
  void end(Job& job, JobState state, int exit_code, std::string reason);
  void save(Job& job);
  void index(Job& job);
  void erase(JobId id);
  void forget_ended_name(const Job& job);
  void make_name_free(wire::JobSpec& spec, JobId id) const;

  Store& store_;
  EventLog& events_;
  const MigrationQueries& migrations_;
  Signal changed_;
  std::map<JobId, Job> jobs_;
  std::map<JobId, Job*> live_;
  std::map<std::string, JobId, std::less<>> live_names_;
  std::set<JobId> ended_;
  std::map<std::string, std::set<JobId>, std::less<>> ended_names_;
  std::set<JobId> owed_stops_;
  std::set<JobId> unsaved_memory_;
  std::int64_t newest_end_ms_ = 0;
  mutable std::uint64_t visited_ = 0;
};

}  // namespace ckpt::coordinator
