// SPDX-License-Identifier: Apache-2.0
// The coordinator's SQLite file (WAL, synchronous=FULL, mode 0600): jobs, nodes, migrations and events for people and for
// a restart. What decides a switch is not here but in the journal (migration/journal.h).
// Threads: one. Errors: kRefused when the disk is full, kCorrupt for a row that does not decode, kNotSupported for a file
// of a newer version.
#pragma once

#include <string>
#include <vector>

#include "coordinator/model.h"
#include "coordinator/sqlite.h"

namespace ckpt::coordinator {

struct NodeRow {
  NodeRow() = default;
  std::string name;
  std::string version;
  std::string peer_address;
  std::int64_t last_seen_ms = 0;
};

// What a node says that a vault holds, as JSON (image_catalog.h).
struct VaultRow {
  VaultRow() = default;
  std::string node;
  std::string folder;
  std::string document;
};

class Store {
 public:
  static Result<Store> open(const std::string& path);

  // Never given twice, whatever is deleted.
  Result<JobId> next_job_id();
  Result<MigrationId> next_migration_id();
  Result<JobId> last_job_id();
  // `count` numbers for images (image_numbers.h), above `above` and all that were reserved before. Returns the last of them.
  Result<std::uint64_t> reserve_image_numbers(std::uint64_t above, std::uint64_t count);

  Result<void> put(const Job& job);
  Result<void> put(const Migration& migration);
  Result<void> put(const NodeRow& node);
  Result<std::vector<Job>> jobs();
  Result<std::vector<Migration>> migrations();
  Result<std::vector<NodeRow>> nodes();
  Result<void> remove_job(JobId id);
  Result<void> put(const VaultRow& vault);
  Result<std::vector<VaultRow>> vaults();
  // Random, made with the file: tells this cluster's jobs from others' in a folder that they share.
  Result<std::string> cluster_id();

  Result<std::uint64_t> add(const Event& event);  // its id
  Result<std::vector<Event>> events(std::uint64_t since, std::size_t limit);
  Result<void> prune_events(std::uint64_t keep);

  // For parts of the coordinator with tables of their own in the same file (cordons.h, drains.h, health.h).
  [[nodiscard]] Database& database() { return db_; }

 private:
  explicit Store(Database db) : db_(std::move(db)) {}
  Result<std::uint64_t> next_id(std::string_view counter);
  Database db_;
};

}  // namespace ckpt::coordinator
