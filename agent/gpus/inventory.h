// SPDX-License-Identifier: Apache-2.0
// The GPUs of this node as the coordinator receives them. NVML is queried on a thread of its own under a
// watchdog, so a wedged driver never blocks the event loop. The GPUs then count as not answering. No second
// call is started before the first returns.
// Threads: used on the event loop only. Errors: none leave this class; a failure is part of the snapshot.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "agent/gpus/nvml.h"
#include "agent/io/async.h"

namespace ckpt::agent {

struct InventorySnapshot {
  std::vector<GpuFacts> gpus;
  std::string driver_version;
  std::string complaint;  // why there is no (fresh) list; empty if all is well
};

class Inventory {
 public:
  // `library` is loaded at the first refresh. `visible`: the machine's GPUs that belong to this node (empty:
  // all), which are then numbered from 0 in that order.
  Inventory(asio::io_context& io, std::string library, std::chrono::milliseconds timeout,
            std::vector<std::uint32_t> visible = {});
  ~Inventory();
  Inventory(const Inventory&) = delete;
  Inventory& operator=(const Inventory&) = delete;

  // Asks the driver; returns after at most the timeout. The object must outlive the coroutine.
  Task<void> refresh();

  [[nodiscard]] const InventorySnapshot& last() const noexcept { return last_; }
  // Why there are no GPUs, or no fresh facts about them; empty: all is well.
  [[nodiscard]] std::string why_no_gpus() const;
  // The GPU of that index, or null.
  [[nodiscard]] const GpuFacts* gpu(std::uint32_t index) const noexcept;

 private:
  struct Query;  // shared with the thread that may be abandoned

  asio::io_context& io_;
  std::string library_;
  std::chrono::milliseconds timeout_;
  std::vector<std::uint32_t> visible_;
  InventorySnapshot last_;
  std::shared_ptr<Query> running_;
};

}  // namespace ckpt::agent
