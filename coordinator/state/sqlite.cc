// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/sqlite.h"

#include <cerrno>

namespace ckpt::coordinator {
namespace {

constexpr int kBusyTimeoutMs = 2000;

Error sqlite_error(sqlite3* db, std::string what) {
  const int last = errno;  // SQLite does not record the error number if a statement's own commit fails
  const int code = sqlite3_extended_errcode(db);
  // SQLite reports a limit on the file's size like any other error. Here it counts as a full disk.
  const bool limited = last == EFBIG || (db != nullptr && sqlite3_system_errno(db) == EFBIG);
  const bool full = (code & 0xff) == SQLITE_FULL || (code == SQLITE_IOERR_WRITE && limited);
  return {full ? ErrorCode::kRefused : ErrorCode::kIo, ErrorDomain::kSqlite, code,
          what + " failed: " + sqlite3_errmsg(db)};
}

}  // namespace

Statement& Statement::bind(int index, std::int64_t value) {
  if (bind_failure_ == SQLITE_OK) bind_failure_ = sqlite3_bind_int64(handle_.get(), index, value);
  return *this;
}

Statement& Statement::bind(int index, std::string_view text) {
  if (bind_failure_ == SQLITE_OK)
    bind_failure_ = sqlite3_bind_text64(handle_.get(), index, text.data() == nullptr ? "" : text.data(),
                                        text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  return *this;
}

Statement& Statement::bind_blob(int index, std::span<const std::byte> bytes) {
  if (bind_failure_ == SQLITE_OK)
    bind_failure_ = bytes.empty() ? sqlite3_bind_zeroblob(handle_.get(), index, 0)
                                  : sqlite3_bind_blob64(handle_.get(), index, bytes.data(), bytes.size(),
                                                        SQLITE_TRANSIENT);
  return *this;
}

Result<bool> Statement::next() {
  if (bind_failure_ != SQLITE_OK) return sqlite_error(db_, "Binding a value");
  const int code = sqlite3_step(handle_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return sqlite_error(db_, std::string("Running \"") + sqlite3_sql(handle_.get()) + "\"");
}

Result<void> Statement::run() {
  while (true) {
    CKPT_TRY(more, next());
    if (!more) return ok();
  }
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(handle_.get(), column);
}

std::string Statement::text(int column) const {
  const auto* text = sqlite3_column_text(handle_.get(), column);
  if (text == nullptr) return {};
  return {reinterpret_cast<const char*>(text),
          static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column))};
}

std::span<const std::byte> Statement::blob(int column) const {
  const auto* data = static_cast<const std::byte*>(sqlite3_column_blob(handle_.get(), column));
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column))};
}

Result<Database> Database::open(const std::string& path) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  Database db{UniqueHandle<DatabaseTraits>(raw)};
  if (code != SQLITE_OK) return sqlite_error(raw, "Opening " + path);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, kBusyTimeoutMs);
  const auto count = [](void* raw_counts) {
    auto* counts = static_cast<Counts*>(raw_counts);
    ++counts->commits;
    if (counts->on_commit) counts->on_commit();
    return 0;
  };
  sqlite3_commit_hook(raw, count, db.counts_.get());
  return db;
}

Result<Database> Database::open_read_only(const std::string& path) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READONLY, nullptr);
  Database db{UniqueHandle<DatabaseTraits>(raw)};
  if (code != SQLITE_OK) return sqlite_error(raw, "Opening " + path);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, kBusyTimeoutMs);
  return db;
}

Result<void> Database::execute(const char* sql) {
  if (sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK)
    return sqlite_error(db_.get(), std::string("Running \"") + sql + "\"");
  return ok();
}

Result<Statement> Database::prepare(std::string_view sql) {
  sqlite3_stmt* raw = nullptr;
  ++counts_->statements;
  if (sqlite3_prepare_v2(db_.get(), sql.data(), static_cast<int>(sql.size()), &raw, nullptr) != SQLITE_OK)
    return sqlite_error(db_.get(), "Preparing \"" + std::string(sql) + "\"");
  return Statement(db_.get(), UniqueHandle<StatementTraits>(raw));
}

}  // namespace ckpt::coordinator
