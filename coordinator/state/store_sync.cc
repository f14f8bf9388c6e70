// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/store_sync.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ckpt::coordinator {
namespace {

// What nobody waits for may share a sync for so long.
constexpr std::chrono::milliseconds kSoon{100};
constexpr std::chrono::seconds kAfterAFailure{1};

Error not_durable(Error cause) {
  const int error = cause.domain() == ErrorDomain::kErrno ? static_cast<int>(cause.native()) : 0;
  const bool full = error == ENOSPC || error == EDQUOT || cause.code() == ErrorCode::kRefused;
  return Error(full ? ErrorCode::kRefused : ErrorCode::kIo,
               "What was changed is in the coordinator's memory, and would be lost with its machine's power")
      .caused_by(std::move(cause));
}

}  // namespace

StoreSync::StoreSync(Store& store, std::string path, control::asio::any_io_executor executor)
    : store_(store), path_(std::move(path)), executor_(std::move(executor)), timer_(executor_) {}

Result<void> StoreSync::begin() {
  CKPT_TRY(copier, Database::open(path_));
  // So long it waits for readers at most, while the writer waits for it.
  CKPT_TRYV(copier.execute("PRAGMA synchronous=FULL; PRAGMA busy_timeout=100;"));
  UniqueFd log(::open((path_ + "-wal").c_str(), O_RDWR | O_CLOEXEC));
  if (!log) return Error::from_errno("Opening the log of " + path_);
  // All before this was synced by the store itself.
  CKPT_TRYV(store_.database().execute("PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=NORMAL;"));
  // A log that begins anew is cut: its size says what is in it.
  const std::string limit = "PRAGMA journal_size_limit=" + std::to_string(kLogBytes / 4) + ";";
  CKPT_TRYV(store_.database().execute(limit.c_str()));
  copier_.emplace(std::move(copier));
  log_ = std::move(log);
  durable_ = store_.database().commits();
  store_.database().on_commit([this] { look_later(); });
  begun_ = true;
  return ok();
}

StoreSync::~StoreSync() {
  if (!begun_) return;
  store_.database().on_commit({});
  disk_.join();
  if (auto synced = sync(); !synced)
    spdlog::error("the last sync of the store: {}", synced.assume_error().to_string());
  // Whoever closes the file last copies the log into it, and must sync then.
  if (auto given_back = store_.database().execute("PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=1000;");
      !given_back)
    spdlog::error("the store does not sync any more: {}", given_back.assume_error().to_string());
}

void StoreSync::when_durable(Then then) {
  if (!begun_) return then(ok());
  const std::uint64_t commits = store_.database().commits();
  if (commits <= durable_) return then(ok());
  waiters_.push_back({commits, std::move(then)});
  sync_soon();
}

// Called in the midst of a commit.
void StoreSync::look_later() {
  if (std::exchange(looks_later_, true)) return;
  timer_.expires_after(failed_ ? std::chrono::milliseconds(kAfterAFailure) : kSoon);
  timer_.async_wait([this](boost::system::error_code code) {
    if (code) return;
    looks_later_ = false;
    sync_soon();
  });
}

void StoreSync::sync_soon() {
  const std::uint64_t commits = store_.database().commits();
  if (commits <= durable_ || std::exchange(under_way_, true)) return;
  control::asio::post(disk_, [this, commits] {
    auto synced = sync();
    control::asio::post(executor_, [this, commits, synced = std::move(synced)] { done(commits, synced); });
    copy_if_large();
  });
}

void StoreSync::done(std::uint64_t commits, const Result<void>& synced) {
  under_way_ = false;
  if (!synced && !failed_) spdlog::error("the store was not synced: {}", synced.assume_error().to_string());
  if (synced && failed_) spdlog::info("the store is synced again");
  failed_ = !synced.has_value();
  if (synced) durable_ = commits;
  std::vector<Waiter> told;
  std::erase_if(waiters_, [&](Waiter& waiter) {
    if (waiter.commits > commits) return false;
    told.push_back(std::move(waiter));
    return true;
  });
  if (!waiters_.empty())
    sync_soon();
  else if (store_.database().commits() > durable_)
    look_later();
  for (const Waiter& waiter : told) waiter.then(synced);
}

Result<void> StoreSync::sync() {
  if (!given_up_) {
    int code = 0;
    while ((code = ::fdatasync(log_.get())) != 0 && errno == EINTR) {
    }
    if (code == 0) return ok();
    given_up_ = true;
    return not_durable(Error::from_errno("Syncing the log of the store"));
  }
  auto copied = copy("FULL");
  if (!copied) return not_durable(std::move(copied).assume_error());
  if (!copied.assume_value())
    return not_durable(Error(ErrorCode::kIo, "After a sync that failed the store is still being read"));
  given_up_ = false;
  return ok();
}

void StoreSync::copy_if_large() {
  struct stat log {};
  if (given_up_ || ::fstat(log_.get(), &log) != 0) return;
  const auto bytes = static_cast<std::uint64_t>(log.st_size);
  if (bytes < kLogBytes) return;
  auto copied = copy("PASSIVE");
  // The writer may have gone on meanwhile, and would for ever.
  if (copied && bytes >= kMaxLogBytes) copied = copy("RESTART");
  if (!copied) spdlog::warn("the store's log was not copied: {}", copied.assume_error().to_string());
}

Result<bool> StoreSync::copy(const char* mode) {
  CKPT_TRY(statement, copier_->prepare(std::string("PRAGMA wal_checkpoint(") + mode + ")"));
  CKPT_TRY(row, statement.next());
  if (!row) return Error(ErrorCode::kInternal, "A checkpoint of the store said nothing");
  const bool busy = statement.integer(0) != 0;
  const bool all = statement.integer(1) == statement.integer(2);
  CKPT_TRYV(statement.run());
  return all && !busy;
}

control::Task<Result<void>> durable(StoreSync& store) {
  std::optional<Result<void>> said;
  const auto executor = co_await control::asio::this_coro::executor;
  co_await control::asio::async_initiate<const control::asio::use_awaitable_t<>, void()>(
      [&](auto handler) {
        const auto kept = std::make_shared<decltype(handler)>(std::move(handler));
        store.when_durable([&said, executor, kept](const Result<void>& durable) {
          said = durable;
          control::asio::post(executor, std::move(*kept));
        });
      },
      control::asio::use_awaitable);
  co_return std::move(*said);
}

}  // namespace ckpt::coordinator
