// SPDX-License-Identifier: Apache-2.0
// The rounds in which the memory of a job's processes leaves ahead of the pause (EarlyPages), beside the
// rounds of device memory. A round begins once what the one before it has read was sent.
// Threads: the event loop; rounds run on the pool. Ownership: shared by the mode and the coroutine of the
// rounds.
// Errors: a round that fails ends the rounds and is logged: the pause then reads what was not.
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

  // Starts the rounds, once. `grew` is called at each growth of the log, on the loop.
  void start(HostGrowth grew);
  // Reports how much of the log was given to the network.
  void sent(std::uint64_t bytes);
  // The first round has all memory to read. Later only bytes are left that were read and not sent yet.
  [[nodiscard]] HostProgress progress() const;
  // Returns the bytes that the pause has to read: those that the last round found written.
  [[nodiscard]] std::uint64_t rest_bytes() const noexcept { return has_settled() ? last_read_ : 0; }
  // The bytes that are in the log and need not be in the image, once the rounds have settled.
  [[nodiscard]] std::uint64_t held_bytes() const noexcept { return has_settled() ? pages_->held_bytes() : 0; }
  // Waits until few pages have been written since they were read, or more rounds do not help.
  Task<> settle();
  // Stops the rounds: none is under way after it, and none begins.
  Task<> stop();
  // Lets go of the processes and of the log, which takes milliseconds. Called after stop(), by any thread.
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
  Turn turn_;
  Signal changed_;
  std::uint64_t sent_ = 0;
  std::uint64_t last_read_ = 0;  // by the last round
  bool has_read_all_ = false;    // and sent it
  Nanos settled_ns_ = 0;         // 0: not yet
  bool is_over_ = false;         // stopped, or a round failed or was cut
};

}  // namespace ckpt::agent
