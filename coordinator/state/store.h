// SPDX-License-Identifier: Apache-2.0
// The coordinator's SQLite file (WAL, mode 0600): jobs, nodes, migrations and events for people and for a
// restart. The decisions of a switch are not here but in the journal (handover/journal.h). Each write is
// durable when it returns (synchronous=FULL), until a StoreSync takes the syncs over: then
// StoreSync::when_durable() tells. Reports and orders that depend on a write wait for that. A power cut takes
// the newest writes, and nodes report those again (recovery.h).
// Threads: one. Errors: kRefused when the disk is full, kCorrupt for a row that does not decode,
// kNotSupported for a file of a newer version.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
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

// The contents of a vault as its node reports them, as JSON (image_catalog.h).
struct VaultRow {
  std::string node;
  std::string folder;
  std::string document;
};

class Store {
 public:
  static Result<Store> open(const std::string& path);

  // Draws the tag of all ids from now on; without it they have none.
  Result<void> draw_id_tag();
  // Never given twice, whatever is deleted, and with a tag whatever becomes of the file.
  Result<JobId> next_job_id();
  Result<MigrationId> next_migration_id();
  // The next id for a part with a table of its own; `known` is the newest id that it has.
  Result<std::uint64_t> next_id_of(std::string_view part, std::uint64_t known);
  [[nodiscard]] wire::IdTag id_tag() const { return tag_; }
  // This file, or an earlier state of it, gave the id; not a coordinator whose file was lost.
  [[nodiscard]] bool gave(JobId id) const;
  // Others gave ids up to these, which this file does not know: the next ones are higher.
  Result<void> count_above(JobId job, MigrationId migration);
  // `count` numbers for images (image_numbers.h), above `above` and all that were reserved before. Returns
  // the last of them.
  Result<std::uint64_t> reserve_image_numbers(std::uint64_t above, std::uint64_t count);

  Result<void> put(const Job& job);
  Result<void> put(const Migration& migration);
  Result<void> put(const NodeRow& node);
  Result<std::vector<Job>> jobs();
  Result<std::vector<Migration>> migrations();
  Result<std::vector<NodeRow>> nodes();
  Result<void> remove_job(JobId id);
  // Each of these is one transaction.
  Result<void> put_jobs(std::span<const Job* const> jobs);
  Result<void> remove_jobs(std::span<const JobId> ids);
  Result<void> put_migrations(std::span<const Migration* const> migrations);
  // The highest of them is remembered: the journal may know them for longer than the store.
  Result<void> remove_migrations(std::span<const MigrationId> ids);
  Result<MigrationId> highest_removed_migration();
  Result<void> remove_node(const std::string& name);
  Result<void> put(const VaultRow& vault);
  Result<std::vector<VaultRow>> vaults();
  // Random, made with the file: tells this cluster's jobs from others' in a folder that they share.
  Result<std::string> cluster_id();
  // The nodes' vaults show that this was the cluster's id before its store was lost. False: images
  // were ordered under the id that this file has, which stays.
  Result<bool> adopt_cluster_id(const std::string& id);

  Result<std::uint64_t> add(const Event& event);  // its id
  Result<std::vector<Event>> events(const EventQuery& query);
  Result<std::uint64_t> newest_event();  // its id; 0: there is none
  // Removes all but the newest `keep`, and those older than `since_ms`; at most kMaxPruned of them. True:
  // there are more.
  static constexpr std::uint64_t kMaxPruned = 5'000;
  Result<bool> prune_events(std::uint64_t keep, std::int64_t since_ms = 0);

  // For parts of the coordinator with tables of their own in the same file (cordons.h, drain_table.h,
  // health.h).
  [[nodiscard]] Database& database() { return db_; }

 private:
  explicit Store(Database db) : db_(std::move(db)) {}
  Result<void> load_job_numbers();
  Result<std::uint64_t> next_id(std::string_view counter);
  // The next id of it has a higher number.
  Result<void> count_from(std::string_view counter, std::uint64_t number);
  Database db_;
  wire::IdTag tag_ = 0;
  std::uint64_t last_job_ = 0;  // number
  std::map<std::uint64_t, wire::IdTag>
      job_tags_;  // by the first number that was given, or kept free, under each
};

}  // namespace ckpt::coordinator
