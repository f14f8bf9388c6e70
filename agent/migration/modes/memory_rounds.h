// SPDX-License-Identifier: Apache-2.0
// The rounds that send the memory of a job's processes before the pause (EarlyPages). They run in parallel
// with the rounds of device memory. A round begins after the bytes of the previous round were sent.
// Threads: the event loop. Rounds run on the pool. Ownership: shared by the mode and the coroutine of the
// rounds. Errors: a failed round stops the rounds and is logged. The pause then reads the remaining memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "agent/host_process/early_pages/early_pages.h"
#include "agent/io/async.h"
#include "agent/migration/modes/migration_context.h"
#include "agent/migration/modes/mode.h"

namespace ckpt::agent {

class MemoryRounds : public std::enable_shared_from_this<MemoryRounds> {
 public:
  MemoryRounds(MigrationContext& context, std::unique_ptr<host::EarlyPages> pages);

  [[nodiscard]] host::EarlyPages& pages() noexcept { return *pages_; }

  // Starts the rounds. Call this function once. `grew` is called at each growth of the log, on the loop.
  void start(HostGrowth grew);
  // Reports how much of the log was passed to the network.
  void sent(std::uint64_t bytes);
  // Returns the progress. In the first round all memory must be read. Later, only bytes that were read but
  // not sent remain.
  [[nodiscard]] HostProgress progress() const;
  // Returns the bytes that the pause must read. These are the bytes that the last round found written.
  [[nodiscard]] std::uint64_t remaining_bytes() const noexcept { return has_settled() ? last_read_ : 0; }
  // Returns the bytes that are in the log and need not be in the image, after the rounds have settled.
  [[nodiscard]] std::uint64_t held_bytes() const noexcept { return has_settled() ? pages_->held_bytes() : 0; }
  // Waits until few pages were written since they were read, or until more rounds are not useful.
  Task<> settle();
  // Stops the rounds. Afterwards no round is in progress and none begins.
  Task<> stop();
  // Releases the processes and the log, which takes milliseconds. Any thread may call this function after
  // stop().
  void close() { pages_.reset(); }
  // Returns the function that finish() calls to report growth on the loop. Any thread may call it.
  [[nodiscard]] host::EarlyPages::Growth growth() const;

 private:
  [[nodiscard]] bool has_settled() const noexcept { return settled_ns_ != 0; }
  Task<bool> run_round();
  Task<> wait_until_sent();

  MigrationContext& context_;
  std::unique_ptr<host::EarlyPages> pages_;
  HostGrowth grew_;
  AsyncMutex turn_;
  AsyncEvent changed_;
  std::uint64_t sent_ = 0;
  std::uint64_t last_read_ = 0;  // bytes that the last round read
  bool has_read_all_ = false;    // true after all memory was read and sent
  Nanos settled_ns_ = 0;         // time at which the rounds settled; 0 before that
  bool is_over_ = false;         // true after the rounds were stopped, or after a round failed or ended early
};

}  // namespace ckpt::agent
