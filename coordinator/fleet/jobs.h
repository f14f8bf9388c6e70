// SPDX-License-Identifier: Apache-2.0
// The job table: the existing jobs and their rows in the store. JobRunner decides the states of jobs. Other
// facts about jobs (protection, memory, doubts) are changed by their owners through replace().
//
// Queries about all jobs visit only those that are not over (live()). Names and ended jobs have an index. The
// memory that jobs use is stored by store_unsaved(), for all jobs together.
// Threads: one io_context on one thread. Ownership: owns the jobs; pointers are valid until remove(),
// remove_old() or drop(). Errors: those of the store. accept(), save() and drop() log them, because the table
// in memory is authoritative.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "coordinator/fleet/job_index.h"
#include "coordinator/fleet/nodes.h"
#include "coordinator/state/retention.h"
#include "coordinator/state/signal.h"
#include "coordinator/state/store.h"

namespace ckpt::coordinator {

class JobTable {
 public:
  JobTable(Store& store, control::asio::any_io_executor executor)
      : store_(store), changed_(std::move(executor)) {}

  Result<void> load();

  Result<JobId> next_id() { return store_.next_job_id(); }
  // Stores a job and then adds it to the table.
  Result<Job*> add(Job job);
  // Stores all of the jobs or none, in one transaction, and then adds them to the table.
  Result<std::vector<Job*>> add_all(std::vector<Job> jobs);
  // Replaces a job by `changed`. The change is durable before it takes effect. On an error nothing has
  // changed.
  Result<void> replace(Job changed);
  // Replaces all of the jobs or none, in one transaction.
  Result<void> replace_all(std::vector<Job> changed);
  // Accepts facts that the store has refused. They take effect at once, and store_unsaved() stores them
  // later.
  void accept(std::vector<Job> changed, const Error& refusal);
  // Stores a job that was changed in place. A change that the store refuses is stored again later.
  void save(Job& job);
  // Removes jobs that have ended, all or none. The removal is durable before it takes effect. On an error
  // nothing has changed.
  Result<void> remove(const std::vector<JobId>& ids);
  // Removes a job that never had a running instance.
  void drop(JobId id);
  // Records that Job::memory has changed and store_unsaved() must store it.
  void memory_changed(JobId id) { unsaved_.insert(id); }
  // Stores changes of jobs' memory since the last call, and facts that the store refused, in one transaction.
  Result<void> store_unsaved();
  // Returns whether a fact of any job, which the store has refused, is not stored yet. is_refused() checks a
  // single job.
  [[nodiscard]] bool has_refused_facts() const { return !refused_.empty(); }
  [[nodiscard]] bool is_refused(JobId id) const { return refused_.contains(id); }
  // Removes ended jobs, the oldest first: those beyond the retention's count or older than its time, if
  // `may_leave` returns true. Removes one batch (Retention::kBatch) at most. Returns their ids, so that their
  // nodes remove them as well.
  std::vector<JobId> remove_old(const Retention& retention, const std::function<bool(const Job&)>& may_leave);

  // Finds a job by id or name. If several ended jobs have the name, returns the newest. The tag of an id may
  // be omitted if only one job has the number.
  [[nodiscard]] Job* find(std::string_view id_or_name);
  // Returns the error for an id or a name that neither find() nor find_whole() knows.
  [[nodiscard]] Error not_found(std::string_view id_or_name) const;
  [[nodiscard]] Job* find(JobId id);
  // Returns the ranks of the whole job (Job::whole()), ordered by rank number. An empty list means that no
  // such job exists.
  [[nodiscard]] std::vector<Job*> ranks_of(JobId whole);
  // Finds a whole job by id or name. If several whole jobs have the name, returns the one that has not ended,
  // otherwise the newest.
  [[nodiscard]] std::optional<JobId> find_whole(std::string_view id_or_name) const;
  [[nodiscard]] bool contains(JobId id) const { return jobs_.contains(id); }
  // Checks whether a job other than `except` has the name and has not ended. A whole job with such a rank
  // counts as well.
  [[nodiscard]] bool is_name_taken(const std::string& name, JobId except = 0) const;
  // Returns all jobs, for listings. visited() counts the jobs that this function and live() return.
  [[nodiscard]] std::map<JobId, Job>& all() {
    visited_ += jobs_.size();
    return jobs_;
  }
  // Returns the current jobs that have not ended or are about to return from an image, ordered by id.
  [[nodiscard]] std::vector<std::reference_wrapper<Job>> live() const;
  // Returns the jobs that must end and have not ended, or may still run on a disconnected node. The jobs are
  // ordered by id.
  [[nodiscard]] std::vector<JobId> to_be_stopped() const;
  [[nodiscard]] std::size_t ended_count() const { return index_.ended().size(); }
  // Returns the time of the newest end of a job in Unix milliseconds, or 0 if no job has ended yet.
  [[nodiscard]] std::int64_t newest_end_ms() const { return newest_end_ms_; }
  [[nodiscard]] std::uint64_t visited() const { return visited_; }
  [[nodiscard]] unsigned live_on(const std::string& node) const;
  [[nodiscard]] unsigned live_on(const Place& place) const;
  // Returns Job::fenced of a removed job: instances up to that incarnation must not run. Returns 0 if none is
  // known.
  [[nodiscard]] Incarnation fenced_of_removed(JobId id) const;
  // Returns whether this cluster had the job and has removed it.
  [[nodiscard]] bool was_forgotten(JobId id) const { return store_.gave(id) && !jobs_.contains(id); }

  [[nodiscard]] Signal& changed() { return changed_; }

 private:
  [[nodiscard]] bool has_live_rank(JobId whole) const;
  void index(Job& job);
  void put_in_place(Job changed);
  void stored_now(JobId id);
  [[nodiscard]] Store::Fences fences_of(const std::vector<JobId>& ids) const;
  void erase(JobId id);
  void keep_fence(JobId id, Incarnation fenced);

  Store& store_;
  Signal changed_;
  std::map<JobId, Job> jobs_;
  JobIndex index_;
  std::set<JobId> unsaved_;  // jobs whose memory is not stored yet
  std::set<JobId> refused_;  // jobs with other facts that the store has refused
  // Job::fenced of the removed jobs that continued from an image, for the jobs that were removed last
  std::map<JobId, Incarnation> fences_;
  std::deque<JobId> removal_order_;  // the jobs of fences_, in the order of their removal
  std::int64_t newest_end_ms_ = 0;
  mutable std::uint64_t visited_ = 0;
};

}  // namespace ckpt::coordinator
