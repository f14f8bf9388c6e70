// SPDX-License-Identifier: Apache-2.0
// Makes what is written to the store durable, on a thread of its own: the loop that writes never waits for
// the disk.
//
// From begin() on the store's own connection (synchronous=NORMAL) copies nothing out of its log. It syncs only
// the header of a log that begins anew: once for each kLogBytes that were written, or more. SQLite's log is a
// prefix of whole transactions whatever a power cut leaves of it. So a coordinator that comes up finds its
// store as it was at one moment. One fdatasync of the log makes durable all that was committed before it
// began. It begins at once for who waits (when_durable()), and soon for what nobody waits for. Beyond
// kLogBytes the log is copied into the store's file, by a connection of the thread's own, which syncs. Beyond
// kMaxLogBytes the writer waits for that.
//
// Threads: the loop's, but for what is said to be the disk thread's. Ownership: borrows the store, which must
// outlive it and is its own again afterwards. Errors: those who wait get kRefused for a full disk, else kIo:
// what they wrote may be lost with the power. The kernel may have given up what a failed sync was to write,
// so nothing is durable then until the whole log has been copied.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/state/store.h"
#include "libckpt/base/fd.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::coordinator {

class StoreSync {
 public:
  static constexpr std::uint64_t kLogBytes = 4 << 20;
  static constexpr std::uint64_t kMaxLogBytes = 16 << 20;

  // Of the store in the file at `path`.
  StoreSync(Store& store, std::string path, control::asio::any_io_executor executor);
  // The last sync.
  ~StoreSync();
  StoreSync(const StoreSync&) = delete;
  StoreSync& operator=(const StoreSync&) = delete;

  // Takes the syncs over; once. Until then the store syncs each write itself.
  Result<void> begin();
  // Calls `then` when all that has been written is durable, or with why it is not: at once, or later on the
  // loop.
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

  // On the disk thread.
  Result<void> sync();
  void copy_if_large();
  // Of all that is in the log at that time: true.
  Result<bool> copy(const char* mode);

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

  std::optional<Database> copier_;  // of the disk thread, as is all that follows
  UniqueFd log_;
  bool given_up_ = false;  // the kernel may have, on a part of the log
  control::asio::thread_pool disk_{1};
};

// Returns when all that has been written to the store is durable, or says why it is not.
control::Task<Result<void>> durable(StoreSync& store);

}  // namespace ckpt::coordinator
