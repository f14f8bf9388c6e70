// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "coordinator/state/documents.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/random.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kSchemaVersion = 3;  // version 2 added parked jobs and checkpoint stores; version 3
                                            // stores enums by name

constexpr std::string_view kRemovedMigration = "migration-removed";

// The setting synchronous=FULL applies until a StoreSync syncs.
constexpr const char* kPragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;";

// A field has a column only if it is searched for or never decoded. All other fields are in one document per
// row.
constexpr const char* kSchema = R"sql(
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS job_tags (first INTEGER PRIMARY KEY, tag INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, spec BLOB NOT NULL, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS nodes (name TEXT PRIMARY KEY, version TEXT NOT NULL, peer_address TEXT NOT NULL,
                                  last_seen_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS migrations (id INTEGER PRIMARY KEY, document TEXT NOT NULL, source_report BLOB,
                                       target_report BLOB);
CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY AUTOINCREMENT, time_ms INTEGER NOT NULL, kind TEXT NOT NULL,
                                   job INTEGER NOT NULL, migration INTEGER NOT NULL, node TEXT NOT NULL,
                                   text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS vaults (node TEXT NOT NULL, folder TEXT NOT NULL, document TEXT NOT NULL,
                                   PRIMARY KEY (node, folder));
CREATE TABLE IF NOT EXISTS job_fences (job INTEGER NOT NULL UNIQUE, fenced INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
)sql";

template <class M>
std::vector<std::byte> encode_optional(const std::optional<M>& message) {
  return message ? wire::encode(*message) : std::vector<std::byte>();
}

template <class M>
Result<std::optional<M>> decode_optional(std::span<const std::byte> bytes) {
  if (bytes.empty()) return std::optional<M>();
  CKPT_TRY(message, wire::decode<M>(bytes));
  return std::optional<M>(std::move(message));
}

Error corrupt_row(const char* table, std::int64_t id, const std::string& reason) {
  return {ErrorCode::kCorrupt,
          std::string("Row ") + std::to_string(id) + " of table " + table + " cannot be decoded: " + reason};
}

Result<void> check_version(Database& db) {
  CKPT_TRY(statement, db.prepare("PRAGMA user_version"));
  CKPT_TRYV(statement.next());
  const std::int64_t version = statement.integer(0);
  if (version > kSchemaVersion)
    return Error(ErrorCode::kNotSupported, "The store has version " + std::to_string(version) +
                                               ", but this program supports at most version " +
                                               std::to_string(kSchemaVersion) +
                                               ": use a newer gpumigrate-coordinator");
  return ok();
}

}  // namespace

Result<Store> Store::open(const std::string& path) {
  // SQLite would create the file with the umask's permissions. Its -wal and -shm files copy the permissions
  // of this file.
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd || ::fchmod(fd.get(), 0600) != 0) return Error::from_errno("Opening " + path);
  fd.reset();
  CKPT_TRY(db, Database::open(path));
  CKPT_TRYV(db.execute(kPragmas));
  CKPT_TRYV(check_version(db));
  CKPT_TRYV(db.execute(kSchema));
  CKPT_TRYV(db.execute(("PRAGMA user_version=" + std::to_string(kSchemaVersion)).c_str()));
  Store store(std::move(db));
  CKPT_TRYV(store.load_job_numbers());
  return store;
}

Result<void> Store::load_job_numbers() {
  CKPT_TRY(counter, db_.prepare("SELECT value FROM counters WHERE name = 'job'"));
  CKPT_TRY(counted, counter.next());
  if (counted) last_job_ = static_cast<std::uint64_t>(counter.integer(0));
  job_tags_.emplace(0, 0);  // the entry for ids from before tags were drawn
  CKPT_TRY(statement, db_.prepare("SELECT first, tag FROM job_tags"));
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return ok();
    job_tags_[static_cast<std::uint64_t>(statement.integer(0))] =
        static_cast<wire::IdTag>(statement.integer(1));
  }
}

Result<void> Store::draw_id_tag() {
  const auto known = [this](wire::IdTag tag) {
    return std::any_of(job_tags_.begin(), job_tags_.end(), [&](const auto& at) { return at.second == tag; });
  };
  constexpr int kMaxDraws = 100;
  wire::IdTag tag = 0;
  for (int draw = 0; known(tag); ++draw) {  // the tag 0 always counts as known, so at least one tag is drawn
    if (draw == kMaxDraws) return Error(ErrorCode::kInternal, "No unused tag for new ids was found");
    CKPT_TRYV(fill_random(std::as_writable_bytes(std::span(&tag, 1))));
    tag &= wire::kMaxIdTag;
  }
  // If no job was numbered under the last tag, the row of that tag is replaced.
  CKPT_TRY(statement, db_.prepare("INSERT OR REPLACE INTO job_tags VALUES (?1, ?2)"));
  statement.bind(1, static_cast<std::int64_t>(last_job_ + 1)).bind(2, static_cast<std::int64_t>(tag));
  CKPT_TRYV(statement.run());
  job_tags_[last_job_ + 1] = tag_ = tag;
  return ok();
}

bool Store::gave(JobId id) const {
  const std::uint64_t number = wire::id_number(id);
  return number <= last_job_ && std::prev(job_tags_.upper_bound(number))->second == wire::id_tag(id);
}

Result<std::uint64_t> Store::next_id(std::string_view counter) {
  CKPT_TRY(
      statement,
      db_.prepare("INSERT INTO counters VALUES (?1, 1) ON CONFLICT(name) DO UPDATE SET value = value + 1 "
                  "RETURNING value"));
  statement.bind(1, counter);
  CKPT_TRY(row, statement.next());
  if (!row) return Error(ErrorCode::kInternal, "Counter " + std::string(counter) + " returned nothing");
  const auto id = static_cast<std::uint64_t>(statement.integer(0));
  CKPT_TRYV(statement.run());
  if (id > wire::kMaxTaggedNumber)
    return Error(ErrorCode::kInternal, "Counter " + std::string(counter) + " has reached its maximum");
  return id;
}

Result<JobId> Store::next_job_id() {
  CKPT_TRY(number, next_id("job"));
  last_job_ = number;
  return wire::make_id(number, tag_);
}
Result<MigrationId> Store::next_migration_id() {
  CKPT_TRY(number, next_id("migration"));
  return wire::make_id(number, tag_);
}

Result<void> Store::count_above(JobId job, MigrationId migration) {
  const std::uint64_t number = wire::id_number(job);
  if (number > last_job_ && number < wire::kMaxTaggedNumber) {
    CKPT_TRYV(count_from("job", number));
    last_job_ = number;
  }
  if (wire::id_number(migration) < wire::kMaxTaggedNumber)
    return count_from("migration", wire::id_number(migration));
  return ok();
}

Result<std::uint64_t> Store::next_id_of(std::string_view part, std::uint64_t known) {
  CKPT_TRYV(count_from(part, wire::id_number(known)));
  CKPT_TRY(number, next_id(part));
  return wire::make_id(number, tag_);
}

Result<void> Store::count_from(std::string_view counter, std::uint64_t number) {
  CKPT_TRY(statement,
           db_.prepare("INSERT INTO counters VALUES (?1, ?2) ON CONFLICT(name) DO UPDATE SET value = "
                       "MAX(value, ?2)"));
  return statement.bind(1, counter).bind(2, static_cast<std::int64_t>(number)).run();
}

Result<std::uint64_t> Store::reserve_image_numbers(std::uint64_t above, std::uint64_t count) {
  CKPT_TRY(statement,
           db_.prepare("INSERT INTO counters VALUES ('image', ?1 + ?2) ON CONFLICT(name) DO UPDATE SET value "
                       "= max(value, ?1) + ?2 RETURNING value"));
  statement.bind(1, static_cast<std::int64_t>(above)).bind(2, static_cast<std::int64_t>(count));
  CKPT_TRY(row, statement.next());
  if (!row) return Error(ErrorCode::kInternal, "The counter of images returned nothing");
  const auto last = static_cast<std::uint64_t>(statement.integer(0));
  CKPT_TRYV(statement.run());
  return last;
}

Result<void> Store::put(const Job& job) {
  CKPT_TRY(statement, db_.prepare("INSERT OR REPLACE INTO jobs VALUES (?1, ?2, ?3)"));
  statement.bind(1, static_cast<std::int64_t>(job.id));
  statement.bind_blob(2, wire::encode(job.spec)).bind(3, job_document(job));
  return statement.run();
}

Result<void> Store::put(const Migration& migration) {
  CKPT_TRY(statement, db_.prepare("INSERT OR REPLACE INTO migrations VALUES (?1, ?2, ?3, ?4)"));
  statement.bind(1, static_cast<std::int64_t>(migration.id)).bind(2, migration_document(migration));
  statement.bind_blob(3, encode_optional(migration.source_report));
  statement.bind_blob(4, encode_optional(migration.target_report));
  return statement.run();
}

Result<void> Store::put(const NodeRow& node) {
  CKPT_TRY(statement, db_.prepare("INSERT OR REPLACE INTO nodes VALUES (?1, ?2, ?3, ?4)"));
  statement.bind(1, node.name).bind(2, node.version).bind(3, node.peer_address).bind(4, node.last_seen_ms);
  return statement.run();
}

Result<std::vector<Job>> Store::jobs() {
  std::vector<Job> jobs;
  CKPT_TRY(statement, db_.prepare("SELECT id, spec, document FROM jobs ORDER BY id"));
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return jobs;
    const std::int64_t id = statement.integer(0);
    auto spec = wire::decode<wire::JobSpec>(statement.blob(1));
    if (!spec) return corrupt_row("jobs", id, spec.error().to_string());
    try {
      Job& job = jobs.emplace_back(job_from_document(statement.text(2)));
      job.id = static_cast<JobId>(id);
      job.spec = *std::move(spec);
    } catch (const std::exception& e) {
      return corrupt_row("jobs", id, e.what());
    }
  }
}

Result<std::vector<Migration>> Store::migrations() {
  std::vector<Migration> migrations;
  CKPT_TRY(statement,
           db_.prepare("SELECT id, document, source_report, target_report FROM migrations ORDER BY id"));
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return migrations;
    const std::int64_t id = statement.integer(0);
    CKPT_TRY(source_report, decode_optional<wire::SourceReport>(statement.blob(2)));
    CKPT_TRY(target_report, decode_optional<wire::TargetReport>(statement.blob(3)));
    try {
      Migration& migration = migrations.emplace_back(migration_from_document(statement.text(1)));
      migration.id = static_cast<MigrationId>(id);
      migration.source_report = std::move(source_report);
      migration.target_report = std::move(target_report);
    } catch (const std::exception& e) {
      return corrupt_row("migrations", id, e.what());
    }
  }
}

Result<std::vector<NodeRow>> Store::nodes() {
  std::vector<NodeRow> nodes;
  CKPT_TRY(statement,
           db_.prepare("SELECT name, version, peer_address, last_seen_ms FROM nodes ORDER BY name"));
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return nodes;
    NodeRow& node = nodes.emplace_back();
    node.name = statement.text(0);
    node.version = statement.text(1);
    node.peer_address = statement.text(2);
    node.last_seen_ms = statement.integer(3);
  }
}

Result<void> Store::remove_job(JobId id) {
  CKPT_TRY(statement, db_.prepare("DELETE FROM jobs WHERE id = ?1"));
  return statement.bind(1, static_cast<std::int64_t>(id)).run();
}

Result<void> Store::put_jobs(std::span<const Job* const> jobs) {
  CKPT_TRY(transaction, Transaction::begin(db_));
  for (const Job* job : jobs) {
    CKPT_TRYV(put(*job));
  }
  return transaction.commit();
}

Result<void> Store::remove_jobs(std::span<const JobId> ids, const Fences& fences) {
  CKPT_TRY(transaction, Transaction::begin(db_));
  for (const JobId id : ids) {
    CKPT_TRYV(remove_job(id));
  }
  for (const auto& [job, fenced] : fences) {
    // Each row gets the highest rowid, so the rowids show the order of the removals. In a table of an earlier
    // build, the rowid is the job's id.
    CKPT_TRY(statement, db_.prepare("INSERT OR REPLACE INTO job_fences (job, fenced) VALUES (?1, ?2)"));
    statement.bind(1, static_cast<std::int64_t>(job)).bind(2, static_cast<std::int64_t>(fenced));
    CKPT_TRYV(statement.run());
  }
  if (!fences.empty()) {
    CKPT_TRY(statement, db_.prepare("DELETE FROM job_fences WHERE rowid <= (SELECT rowid FROM job_fences "
                                    "ORDER BY rowid DESC LIMIT 1 OFFSET ?1)"));
    CKPT_TRYV(statement.bind(1, static_cast<std::int64_t>(kMaxFences)).run());
  }
  return transaction.commit();
}

Result<Store::Fences> Store::fences() {
  Fences fences;
  CKPT_TRY(statement, db_.prepare("SELECT job, fenced FROM job_fences ORDER BY rowid"));
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return fences;
    fences.emplace_back(static_cast<JobId>(statement.integer(0)),
                        static_cast<Incarnation>(statement.integer(1)));
  }
}

Result<void> Store::put_migrations(std::span<const Migration* const> migrations) {
  CKPT_TRY(transaction, Transaction::begin(db_));
  for (const Migration* migration : migrations) {
    CKPT_TRYV(put(*migration));
  }
  return transaction.commit();
}

Result<void> Store::remove_migrations(std::span<const MigrationId> ids) {
  if (ids.empty()) return ok();
  CKPT_TRY(transaction, Transaction::begin(db_));
  for (const MigrationId id : ids) {
    CKPT_TRY(statement, db_.prepare("DELETE FROM migrations WHERE id = ?1"));
    CKPT_TRYV(statement.bind(1, static_cast<std::int64_t>(id)).run());
  }
  CKPT_TRY(
      marker,
      db_.prepare("INSERT INTO counters VALUES (?1, ?2) ON CONFLICT(name) DO UPDATE SET value = MAX(value, "
                  "excluded.value)"));
  marker.bind(1, kRemovedMigration).bind(2, static_cast<std::int64_t>(std::ranges::max(ids)));
  CKPT_TRYV(marker.run());
  return transaction.commit();
}

Result<MigrationId> Store::highest_removed_migration() {
  CKPT_TRY(statement, db_.prepare("SELECT value FROM counters WHERE name = ?1"));
  CKPT_TRY(row, statement.bind(1, kRemovedMigration).next());
  return row ? static_cast<MigrationId>(statement.integer(0)) : MigrationId{0};
}

Result<void> Store::remove_node(const std::string& name) {
  CKPT_TRY(statement, db_.prepare("DELETE FROM nodes WHERE name = ?1"));
  return statement.bind(1, name).run();
}

Result<void> Store::put(const CheckpointStoreRow& checkpoint_store) {
  CKPT_TRY(statement, db_.prepare("INSERT OR REPLACE INTO vaults VALUES (?1, ?2, ?3)"));
  return statement.bind(1, checkpoint_store.node)
      .bind(2, checkpoint_store.folder)
      .bind(3, checkpoint_store.document)
      .run();
}

Result<std::vector<CheckpointStoreRow>> Store::checkpoint_stores() {
  std::vector<CheckpointStoreRow> checkpoint_stores;
  CKPT_TRY(statement, db_.prepare("SELECT node, folder, document FROM vaults ORDER BY node, folder"));
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return checkpoint_stores;
    CheckpointStoreRow& checkpoint_store = checkpoint_stores.emplace_back();
    checkpoint_store.node = statement.text(0);
    checkpoint_store.folder = statement.text(1);
    checkpoint_store.document = statement.text(2);
  }
}

Result<std::string> Store::cluster_id() {
  constexpr std::size_t kBytes = 4;
  CKPT_TRY(fresh, random_hex(kBytes));
  CKPT_TRY(insert, db_.prepare("INSERT OR IGNORE INTO settings VALUES ('cluster', ?1)"));
  CKPT_TRYV(insert.bind(1, fresh).run());
  CKPT_TRY(statement, db_.prepare("SELECT value FROM settings WHERE name = 'cluster'"));
  CKPT_TRY(row, statement.next());
  if (!row) return Error(ErrorCode::kInternal, "The store has no id of the cluster");
  return statement.text(0);
}

Result<bool> Store::adopt_cluster_id(const std::string& id) {
  CKPT_TRY(ordered, db_.prepare("SELECT value FROM counters WHERE name = 'image'"));
  CKPT_TRY(row, ordered.next());
  if (row) return false;
  CKPT_TRY(statement,
           db_.prepare("INSERT INTO settings VALUES ('cluster', ?1) ON CONFLICT(name) DO UPDATE SET value "
                       "= excluded.value"));
  CKPT_TRYV(statement.bind(1, id).run());
  return true;
}

Result<std::uint64_t> Store::add(const Event& event) {
  CKPT_TRY(statement, db_.prepare("INSERT INTO events (time_ms, kind, job, migration, node, text) "
                                  "VALUES (?1, ?2, ?3, ?4, ?5, ?6)"));
  statement.bind(1, event.time_ms).bind(2, event.kind);
  statement.bind(3, static_cast<std::int64_t>(event.job)).bind(4, static_cast<std::int64_t>(event.migration));
  statement.bind(5, event.node).bind(6, event.text);
  CKPT_TRYV(statement.run());
  return static_cast<std::uint64_t>(db_.last_row_id());
}

Result<std::uint64_t> Store::newest_event() {
  CKPT_TRY(statement, db_.prepare("SELECT IFNULL(MAX(id), 0) FROM events"));
  CKPT_TRYV(statement.next());
  const auto newest = static_cast<std::uint64_t>(statement.integer(0));
  CKPT_TRYV(statement.run());
  return newest;
}

Result<std::vector<Event>> Store::events(const EventQuery& query) {
  std::vector<Event> events;
  std::string kinds;  // the event kinds, with a comma before and after each: ",cordoned,uncordoned,"
  for (const std::string& kind : query.kinds) kinds += "," + kind + ",";
  CKPT_TRY(statement,
           db_.prepare("SELECT id, time_ms, kind, job, migration, node, text FROM events WHERE id > ?1 "
                       "AND time_ms >= ?3 AND (?4 = 0 OR job = ?5) "
                       "AND (?6 = '' OR instr(?6, ',' || kind || ',') > 0) ORDER BY id LIMIT ?2"));
  statement.bind(1, static_cast<std::int64_t>(query.since)).bind(2, static_cast<std::int64_t>(query.limit));
  statement.bind(3, query.since_ms).bind(4, std::int64_t{query.job ? 1 : 0});
  statement.bind(5, static_cast<std::int64_t>(query.job.value_or(0))).bind(6, kinds);
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return events;
    Event& event = events.emplace_back();
    event.id = static_cast<std::uint64_t>(statement.integer(0));
    event.time_ms = statement.integer(1);
    event.kind = statement.text(2);
    event.job = static_cast<JobId>(statement.integer(3));
    event.migration = static_cast<MigrationId>(statement.integer(4));
    event.node = statement.text(5);
    event.text = statement.text(6);
  }
}

Result<bool> Store::prune_events(std::uint64_t max_events, std::int64_t since_ms) {
  // The queries are fast: two use the key, and the third stops at the first row that stays.
  CKPT_TRY(bounds,
           db_.prepare("SELECT (SELECT MIN(id) FROM events), (SELECT MAX(id) FROM events), (SELECT id FROM "
                       "events WHERE time_ms >= ?1 ORDER BY id LIMIT 1)"));
  CKPT_TRYV(bounds.bind(1, since_ms).next());
  const std::int64_t first = bounds.integer(0);
  const std::int64_t end = bounds.integer(1) + 1;
  const std::int64_t young = bounds.integer(2);
  const auto retained = static_cast<std::int64_t>(std::min(static_cast<std::uint64_t>(end), max_events));
  const std::int64_t by_count = end - retained;
  const std::int64_t wanted = std::max(by_count, young == 0 ? end : young);
  const std::int64_t before = std::min(wanted, first + static_cast<std::int64_t>(kMaxPruned));
  CKPT_TRYV(bounds.run());
  if (before <= first) return false;
  CKPT_TRY(statement, db_.prepare("DELETE FROM events WHERE id < ?1"));
  CKPT_TRYV(statement.bind(1, before).run());
  return before < wanted;
}

}  // namespace ckpt::coordinator
