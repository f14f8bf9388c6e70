// SPDX-License-Identifier: Apache-2.0
// Makes the writes to the store durable, on a thread of its own: the loop that writes never waits for the
// disk.
//
// From begin() on the store's own connection (synchronous=NORMAL) copies nothing out of its log. It syncs
// only the header of a log that begins again: once for each StoreLog::kLogBytes that were written, or more. A
// coordinator that restarts after a power cut finds its store as it was at one moment (store_log.h). A sync
// begins at once for a waiter (when_durable()), and soon for writes without one.
//
// Threads: the loop's; the log is the disk thread's. Ownership: borrows the store, which must outlive it and
// syncs by itself again afterwards. Errors: waiters get kRefused for a full disk, else kIo: their writes may
// be lost with the power.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/state/store.h"
#include "coordinator/state/store_log.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::coordinator {

class StoreSync {
 public:
  // `path`: the file of `store`.
  StoreSync(Store& store, std::string path, control::asio::any_io_executor executor);
  // The last sync.
  ~StoreSync();
  StoreSync(const StoreSync&) = delete;
  StoreSync& operator=(const StoreSync&) = delete;

  // Takes the syncs over; once. Until then the store syncs each write itself.
  Result<void> begin();
  // Calls `then` when all writes up to now are durable, or with the error: at once, or later on the loop.
  using Then = std::function<void(const Result<void>&)>;
  void when_durable(Then then);

 private:
  struct Waiter {
    std::uint64_t commits = 0;
    Then then;
  };
  void look_later();
  void sync_soon();
  void done(std::uint64_t commits, const Result<void>& synced);

  Store& store_;
  std::string path_;
  control::asio::any_io_executor executor_;
  bool begun_ = false;
  std::uint64_t durable_ = 0;  // so many commits
  bool under_way_ = false;
  bool failed_ = false;
  bool looks_later_ = false;
  std::vector<Waiter> waiters_;
  control::asio::steady_timer timer_;

  std::optional<StoreLog> log_;  // the disk thread's, from begin() on
  control::asio::thread_pool disk_{1};
};

// Returns when all writes to the store up to now are durable, or the error.
control::Task<Result<void>> durable(StoreSync& store);

}  // namespace ckpt::coordinator
