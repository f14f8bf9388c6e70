// SPDX-License-Identifier: Apache-2.0
// Makes the writes to the store durable on a separate thread. The loop that writes never waits for the disk.
//
// From begin() on, the store's own connection (synchronous=NORMAL) copies nothing out of its log. It syncs
// only the header of a log that begins again, at most once per StoreLog::kLogBytes written. A coordinator
// that restarts after a power failure finds its store in the state of one moment (store_log.h). A sync begins
// at once for a waiter (when_durable()), and soon for writes without a waiter.
//
// Threads: the loop's; only the disk thread uses the log. Ownership: borrows the store, which must outlive
// this object. After the destruction of this object, the store syncs its writes itself again. Errors: waiters
// receive kRefused for a full disk, otherwise kIo: their writes may be lost in a power failure.
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
  // Takes the store and the `path` of the store's file.
  StoreSync(Store& store, std::string path, control::asio::any_io_executor executor);
  // Makes a last sync. From then on the store syncs its writes itself.
  ~StoreSync();
  StoreSync(const StoreSync&) = delete;
  StoreSync& operator=(const StoreSync&) = delete;

  // Takes over the syncs. Call this once. Until then the store syncs each write itself.
  Result<void> begin();
  // Calls `then` when all writes up to now are durable, or with the error. The call happens at once, or later
  // on the loop.
  using Then = std::function<void(const Result<void>&)>;
  void when_durable(Then then);

 private:
  struct Waiter {
    std::uint64_t commits = 0;
    Then then;
  };
  void check_later();
  void sync_soon();
  void done(std::uint64_t commits, const Result<void>& synced);

  Store& store_;
  std::string path_;
  control::asio::any_io_executor executor_;
  bool begun_ = false;
  std::uint64_t durable_ = 0;  // the number of durable commits
  bool under_way_ = false;
  bool failed_ = false;
  bool check_is_due_ = false;
  std::vector<Waiter> waiters_;
  control::asio::steady_timer timer_;

  std::optional<StoreLog> log_;  // used by the disk thread, from begin() on
  control::asio::thread_pool disk_{1};
};

// Returns when all writes to the store up to now are durable, or returns the error.
control::Task<Result<void>> durable(StoreSync& store);

}  // namespace ckpt::coordinator
