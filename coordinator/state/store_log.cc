// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/store_log.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ckpt::coordinator {
namespace {

Error not_durable(Error cause) {
  const int error = cause.domain() == ErrorDomain::kErrno ? static_cast<int>(cause.native()) : 0;
  const bool full = error == ENOSPC || error == EDQUOT || cause.code() == ErrorCode::kRefused;
  return Error(full ? ErrorCode::kRefused : ErrorCode::kIo,
               "The change is not durable yet: a power failure of the coordinator's machine would lose it")
      .caused_by(std::move(cause));
}

}  // namespace

Result<StoreLog> StoreLog::open(const std::string& path) {
  CKPT_TRY(copier, Database::open(path));
  // The busy timeout limits the wait for readers, because the writer waits for the copy.
  CKPT_TRYV(copier.execute("PRAGMA synchronous=FULL; PRAGMA busy_timeout=100;"));
  UniqueFd log(::open((path + "-wal").c_str(), O_RDWR | O_CLOEXEC));
  if (!log) return Error::from_errno("Cannot open the log of " + path);
  return StoreLog(std::move(copier), std::move(log));
}

Result<void> StoreLog::sync() {
  if (!given_up_) {
    int code = 0;
    while ((code = ::fdatasync(log_.get())) != 0 && errno == EINTR) {
    }
    if (code == 0) return ok();
    given_up_ = true;
    return not_durable(Error::from_errno("Cannot sync the log of the store"));
  }
  auto copied = copy("FULL");
  if (!copied) return not_durable(std::move(copied).error());
  if (!*copied)
    return not_durable(Error(ErrorCode::kIo, "The store is still being read after a failed sync"));
  given_up_ = false;
  return ok();
}

void StoreLog::copy_if_large() {
  struct stat log {};
  if (given_up_ || ::fstat(log_.get(), &log) != 0) return;
  const auto bytes = static_cast<std::uint64_t>(log.st_size);
  if (bytes < kLogBytes) return;
  auto copied = copy("PASSIVE");
  // The writer may have continued in the meantime, and the log could grow forever. RESTART lets the log begin
  // again.
  if (copied && bytes >= kMaxLogBytes) copied = copy("RESTART");
  if (!copied) spdlog::warn("the store's log was not copied: {}", copied.error().to_string());
}

Result<bool> StoreLog::copy(const char* mode) {
  CKPT_TRY(statement, copier_.prepare(std::string("PRAGMA wal_checkpoint(") + mode + ")"));
  CKPT_TRY(row, statement.next());
  if (!row) return Error(ErrorCode::kInternal, "A checkpoint of the store returned no row");
  const bool busy = statement.integer(0) != 0;
  const bool all = statement.integer(1) == statement.integer(2);
  CKPT_TRYV(statement.run());
  return all && !busy;
}

}  // namespace ckpt::coordinator
