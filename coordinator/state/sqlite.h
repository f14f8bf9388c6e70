// SPDX-License-Identifier: Apache-2.0
// The subset of SQLite that the store needs: an owned database and owned prepared statements.
// Threads: one. Errors: domain kSqlite with the extended result code; kRefused for a full disk, otherwise
// kIo.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "libckpt/base/handle.h"
#include "libckpt/base/result.h"

namespace ckpt::coordinator {

struct DatabaseTraits {
  using Value = sqlite3*;
  static constexpr Value kNull = nullptr;
  static void close(Value db) noexcept { sqlite3_close_v2(db); }
};
struct StatementTraits {
  using Value = sqlite3_stmt*;
  static constexpr Value kNull = nullptr;
  static void close(Value statement) noexcept { sqlite3_finalize(statement); }
};

class Statement {
 public:
  Statement(sqlite3* db, UniqueHandle<StatementTraits> handle) : db_(db), handle_(std::move(handle)) {}

  // Binds a parameter. Parameters are numbered from 1, and columns from 0.
  Statement& bind(int index, std::int64_t value);
  Statement& bind(int index, std::string_view text);
  Statement& bind_blob(int index, std::span<const std::byte> bytes);

  Result<bool> next();  // returns true if a row is available
  Result<void> run();   // runs the statement to its end and ignores rows
  [[nodiscard]] std::int64_t integer(int column) const;
  [[nodiscard]] std::string text(int column) const;
  [[nodiscard]] std::span<const std::byte> blob(int column) const;  // returns bytes that are valid until the
                                                                    // next call of next()

 private:
  sqlite3* db_;
  UniqueHandle<StatementTraits> handle_;
  int bind_failure_ = SQLITE_OK;
};

class Database {
 public:
  static Result<Database> open(const std::string& path);
  // Opens a file that other connections may write. Each statement reads a consistent state of the file.
  static Result<Database> open_read_only(const std::string& path);

  Result<void> execute(const char* sql);
  Result<Statement> prepare(std::string_view sql);
  [[nodiscard]] std::int64_t last_row_id() const { return sqlite3_last_insert_rowid(db_.get()); }
  // Sets a listener that is called within each commit. The listener must not use the database.
  void on_commit(std::function<void()> listener) { counts_->on_commit = std::move(listener); }
  // These functions return the number of commits and statements. A commit takes one fsync, unless a StoreSync
  // syncs.
  [[nodiscard]] std::uint64_t commits() const { return counts_->commits; }
  [[nodiscard]] std::uint64_t statements() const { return counts_->statements; }

 private:
  struct Counts {
    std::uint64_t commits = 0;
    std::uint64_t statements = 0;
    std::function<void()> on_commit;
  };
  explicit Database(UniqueHandle<DatabaseTraits> db) : db_(std::move(db)) {}
  std::unique_ptr<Counts> counts_ = std::make_unique<Counts>();  // on the heap, because SQLite stores its
                                                                 // address
  UniqueHandle<DatabaseTraits> db_;
};

// A transaction: all or none of the writes between begin() and commit() take effect. They are rolled back if
// the object is destroyed before commit(). Transactions are not nested.
class Transaction {
 public:
  static Result<Transaction> begin(Database& db) {
    CKPT_TRYV(db.execute("BEGIN IMMEDIATE"));
    return Transaction(db);
  }
  ~Transaction() {
    if (db_ != nullptr) (void)db_->execute("ROLLBACK");
  }
  Transaction(Transaction&& other) noexcept : db_(std::exchange(other.db_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  Result<void> commit() {
    CKPT_TRYV(db_->execute("COMMIT"));
    db_ = nullptr;
    return ok();
  }

 private:
  explicit Transaction(Database& db) : db_(&db) {}
  Database* db_;
};

}  // namespace ckpt::coordinator
