// SPDX-License-Identifier: Apache-2.0
// The coordinator's SQLite file (WAL, mode 0600): jobs, nodes, migrations and events, for users and for a
// restart. The decisions of a handover are not in this file but in the journal (handover/journal.h). Each
// write is durable when it returns (synchronous=FULL), until a StoreSync takes over the syncs. Then
// StoreSync::when_durable() reports when writes are durable, and dependent reports and orders wait for that.
// A power failure may lose the newest writes, which nodes report again (recovery.h).
// Threads: one. Errors: kRefused when the disk is full, kCorrupt for a row that does not decode,
// kNotSupported for a file of a newer version.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/state/model.h"
#include "coordinator/state/sqlite.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::coordinator {

struct NodeRow {
  std::string name;
  std::string version;
  std::string peer_address;
  std::int64_t last_seen_ms = 0;
};

// The contents of a checkpoint store as its node reports them, as JSON (image_catalog.h).
struct CheckpointStoreRow {
  std::string node;
  std::string folder;
  std::string document;
};

class Store {
 public:
  static Result<Store> open(const std::string& path);

  // Draws the tag of all ids from now on. Without it ids have no tag.
  Result<void> draw_id_tag();
  // Returns an id that is never assigned twice, even if entries are deleted. With a tag, this is true even
  // after a loss of the file.
  Result<JobId> next_job_id();
  Result<MigrationId> next_migration_id();
  // Returns the next id for a part with a table of its own. `known` is the newest id in that table.
  Result<std::uint64_t> next_id_of(std::string_view part, std::uint64_t known);
  [[nodiscard]] wire::IdTag id_tag() const { return tag_; }
  // Returns whether this file, or an earlier state of it, assigned the id. Ids from a coordinator whose file
  // was lost do not count.
  [[nodiscard]] bool gave(JobId id) const;
  // Makes the next ids higher than these ids, which this file did not assign and does not know.
  Result<void> count_above(JobId job, MigrationId migration);
  // Reserves `count` numbers for images (image_numbers.h), above `above` and all reserved numbers. Returns
  // the last of them.
  Result<std::uint64_t> reserve_image_numbers(std::uint64_t above, std::uint64_t count);

  Result<void> put(const Job& job);
  Result<void> put(const Migration& migration);
  Result<void> put(const NodeRow& node);
  Result<std::vector<Job>> jobs();
  Result<std::vector<Migration>> migrations();
  Result<std::vector<NodeRow>> nodes();
  Result<void> remove_job(JobId id);
  // Each of the following functions is one transaction.
  Result<void> put_jobs(std::span<const Job* const> jobs);
  // Removes the jobs, and keeps Job::fenced of the jobs in `fences`. It is kept only for the kMaxFences jobs
  // that were removed last.
  static constexpr std::size_t kMaxFences = 10'000;
  using Fences = std::vector<std::pair<JobId, Incarnation>>;
  Result<void> remove_jobs(std::span<const JobId> ids, const Fences& fences = {});
  Result<Fences> fences();  // returns the fences in the order of the removals
  Result<void> put_migrations(std::span<const Migration* const> migrations);
  // Removes migrations and stores the highest of their ids, because the journal may know migrations for
  // longer than the store.
  Result<void> remove_migrations(std::span<const MigrationId> ids);
  Result<MigrationId> highest_removed_migration();
  Result<void> remove_node(const std::string& name);
  Result<void> put(const CheckpointStoreRow& checkpoint_store);
  Result<std::vector<CheckpointStoreRow>> checkpoint_stores();
  // Returns the cluster's random id, which was created with the file. It distinguishes this cluster's jobs
  // from those of other clusters in a shared folder.
  Result<std::string> cluster_id();
  // Adopts the id that the cluster had before its store was lost, as the nodes' checkpoint stores show.
  // Returns false if images were already ordered under the id of this file, which then stays.
  Result<bool> adopt_cluster_id(const std::string& id);

  Result<std::uint64_t> add(const Event& event);  // returns the event's id
  Result<std::vector<Event>> events(const EventQuery& query);
  Result<std::uint64_t> newest_event();  // returns the newest event's id; 0: there is none
  // Removes all events except the newest `max_events`, and those older than `since_ms`, but at most kMaxPruned
  // events. Returns true if there are more.
  static constexpr std::uint64_t kMaxPruned = 5'000;
  Result<bool> prune_events(std::uint64_t max_events, std::int64_t since_ms = 0);

  // Returns the database, for parts of the coordinator with tables of their own in the same file (cordons.h,
  // drain_table.h, health.h).
  [[nodiscard]] Database& database() { return db_; }

 private:
  explicit Store(Database db) : db_(std::move(db)) {}
  Result<void> load_job_numbers();
  Result<std::uint64_t> next_id(std::string_view counter);
  // Makes the counter's next id higher than `number`.
  Result<void> count_from(std::string_view counter, std::uint64_t number);
  Database db_;
  wire::IdTag tag_ = 0;
  std::uint64_t last_job_ = 0;  // the number of the newest job id
  std::map<std::uint64_t, wire::IdTag>
      job_tags_;  // tags by the first number that was assigned, or reserved, under each tag
};

}  // namespace ckpt::coordinator
