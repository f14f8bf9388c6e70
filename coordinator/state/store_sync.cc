// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/store_sync.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace ckpt::coordinator {
namespace {

// The time that a write without a waiter may wait for other writes, to share a sync.
constexpr std::chrono::milliseconds kSoon{100};
constexpr std::chrono::seconds kAfterAFailure{1};

}  // namespace

StoreSync::StoreSync(Store& store, std::string path, control::asio::any_io_executor executor)
    : store_(store), path_(std::move(path)), executor_(std::move(executor)), timer_(executor_) {}

Result<void> StoreSync::begin() {
  CKPT_TRY(log, StoreLog::open(path_));
  // From now on this object syncs. The store itself has synced all earlier writes.
  CKPT_TRYV(store_.database().execute("PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=NORMAL;"));
  // SQLite truncates a log that begins again, so that its size matches its content.
  const std::string limit = "PRAGMA journal_size_limit=" + std::to_string(StoreLog::kLogBytes / 4) + ";";
  CKPT_TRYV(store_.database().execute(limit.c_str()));
  log_.emplace(std::move(log));
  durable_ = store_.database().commits();
  store_.database().on_commit([this] { check_later(); });
  begun_ = true;
  return ok();
}

StoreSync::~StoreSync() {
  if (!begun_) return;
  store_.database().on_commit({});
  disk_.join();
  if (auto synced = log_->sync(); !synced)
    spdlog::error("the last sync of the store failed: {}", synced.error().to_string());
  // The connection that closes the file last copies the log into the file, and must sync in that case.
  if (auto given_back = store_.database().execute("PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=1000;");
      !given_back)
    spdlog::error("the sync mode of the store was not restored: {}", given_back.error().to_string());
}

void StoreSync::when_durable(Then then) {
  if (!begun_) return then(ok());
  const std::uint64_t commits = store_.database().commits();
  if (commits <= durable_) return then(ok());
  waiters_.push_back({commits, std::move(then)});
  sync_soon();
}

// Schedules a check. This is called within a commit.
void StoreSync::check_later() {
  if (std::exchange(check_is_due_, true)) return;
  timer_.expires_after(failed_ ? std::chrono::milliseconds(kAfterAFailure) : kSoon);
  timer_.async_wait([this](boost::system::error_code code) {
    if (code) return;
    check_is_due_ = false;
    sync_soon();
  });
}

void StoreSync::sync_soon() {
  const std::uint64_t commits = store_.database().commits();
  if (commits <= durable_ || std::exchange(under_way_, true)) return;
  control::asio::post(disk_, [this, commits] {
    auto synced = log_->sync();
    control::asio::post(executor_, [this, commits, synced = std::move(synced)] { done(commits, synced); });
    log_->copy_if_large();
  });
}

void StoreSync::done(std::uint64_t commits, const Result<void>& synced) {
  under_way_ = false;
  if (!synced && !failed_) spdlog::error("the store was not synced: {}", synced.error().to_string());
  if (synced && failed_) spdlog::info("the store is synced again");
  failed_ = !synced.has_value();
  if (synced) durable_ = commits;
  std::vector<Waiter> ready;
  std::erase_if(waiters_, [&](Waiter& waiter) {
    if (waiter.commits > commits) return false;
    ready.push_back(std::move(waiter));
    return true;
  });
  if (!waiters_.empty())
    sync_soon();
  else if (store_.database().commits() > durable_)
    check_later();
  for (const Waiter& waiter : ready) waiter.then(synced);
}

control::Task<Result<void>> durable(StoreSync& store) {
  std::optional<Result<void>> outcome;
  const auto executor = co_await control::asio::this_coro::executor;
  co_await control::asio::async_initiate<const control::asio::use_awaitable_t<>, void()>(
      [&](auto handler) {
        const auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        store.when_durable([&outcome, executor, shared](const Result<void>& durable) {
          outcome = durable;
          control::asio::post(executor, std::move(*shared));
        });
      },
      control::asio::use_awaitable);
  co_return std::move(*outcome);
}

}  // namespace ckpt::coordinator
