// SPDX-License-Identifier: Apache-2.0
// The job table: which jobs there are, and their rows in the store. JobRunner decides what becomes of jobs; other facts
// about them (protection, memory, doubts) are changed by their owners through replace().
//
// Queries about all jobs visit those that are not over (live()). Names and ended jobs have an index. The
// memory that jobs hold is stored by store_unsaved(), for all at once.
// Threads: one io_context on one thread. Ownership: jobs live here; pointers are valid until remove_old() or
// drop(). Errors: those of the store; accept(), save() and drop() log them (memory is what counts).
#pragma once

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
  // Stored before it is here.
  Result<Job*> add(Job job);
  // All of them or none: in one transaction.
  Result<std::vector<Job*>> add_all(std::vector<Job> jobs);
  // A job is replaced by `changed`: durable before it counts, or an error and nothing has changed.
  Result<void> replace(Job changed);
  // All of them or none: in one transaction.
  Result<void> replace_all(std::vector<Job> changed);
  // Facts that the store has refused: they count at once, and are stored again by store_unsaved().
  void accept(std::vector<Job> changed, const Error& refusal);
  // Stores a job that was changed in place. What the store refuses is stored again.
  void save(Job& job);
  // Removes a job that has ended: durable before it counts, or an error and nothing has changed.
  Result<void> remove(JobId id);
  // Removes a job of which nothing ever ran.
  void drop(JobId id);
  // Job::memory has changed, and store_unsaved() shall store it.
  void memory_changed(JobId id) { unsaved_.insert(id); }
  // Stores what was learnt of jobs' memory since the last call, and facts that the store refused, in one transaction.
  Result<void> store_unsaved();
  // The store has refused a fact.
  [[nodiscard]] bool has_refused_facts() const { return !refused_.empty(); }
  [[nodiscard]] bool is_refused(JobId id) const { return refused_.contains(id); }
  // Removes some of the ended jobs that need not stay, the oldest first. Returns their ids, so that their
  // nodes forget them, too.
  std::vector<JobId> remove_old(const Retention& keep, const std::function<bool(const Job&)>& may_leave);

  // Id or name; of several ended jobs with the name the newest. The tag of an id may be left out where one
  // job has the number.
  [[nodiscard]] Job* find(std::string_view id_or_name);
  // The error for a find() without a result.
  [[nodiscard]] Error not_found(std::string_view id_or_name) const;
  [[nodiscard]] Job* find(JobId id);
  // The jobs that are the gang's ranks, by rank; none: there is no such gang.
  [[nodiscard]] std::vector<Job*> ranks_of(JobId gang);
  // A gang by id or name; of several with the name the newest.
  [[nodiscard]] std::optional<JobId> find_gang(std::string_view id_or_name) const;
  [[nodiscard]] bool contains(JobId id) const { return jobs_.contains(id); }
  // A job that has not ended, or a gang with such a rank, has it, and is not `except`.
  [[nodiscard]] bool is_name_taken(const std::string& name, JobId except = 0) const;
  // For listings; visited() counts what it and live() return.
  [[nodiscard]] std::map<JobId, Job>& all() {
    visited_ += jobs_.size();
    return jobs_;
  }
  // The jobs that have not ended, or are about to come back from an image; by id, as of now.
  [[nodiscard]] std::vector<std::reference_wrapper<Job>> live() const;
  // The jobs that are to end and have not, or may live on a node that is away; by id, as of now.
  [[nodiscard]] std::vector<JobId> to_be_stopped() const;
  [[nodiscard]] std::size_t ended_count() const { return index_.ended().size(); }
  [[nodiscard]] std::int64_t newest_end_ms() const { return newest_end_ms_; }  // 0: none has ended yet
  [[nodiscard]] std::uint64_t visited() const { return visited_; }
  [[nodiscard]] unsigned live_on(const std::string& node) const;
  [[nodiscard]] unsigned live_on(const Place& place) const;
  // True if this cluster had the job, and has removed it.
  [[nodiscard]] bool was_forgotten(JobId id) const { return store_.gave(id) && !jobs_.contains(id); }

  [[nodiscard]] Signal& changed() { return changed_; }

 private:
  void index(Job& job);
  void put_in_place(Job changed);
  void stored_now(JobId id);
  void erase(JobId id);

  Store& store_;
  Signal changed_;
  std::map<JobId, Job> jobs_;
  JobIndex index_;
  std::set<JobId> unsaved_;  // their memory
  std::set<JobId> refused_;  // the rest of them
  std::int64_t newest_end_ms_ = 0;
  mutable std::uint64_t visited_ = 0;
};

}  // namespace ckpt::coordinator
