// SPDX-License-Identifier: Apache-2.0
// The GPUs of this node as the coordinator receives them. A separate thread queries NVML under a watchdog, so
// a hung driver never blocks the event loop. While the driver hangs, the GPUs count as not answering. A
// second query starts only after the first has returned.
// Threads: used on the event loop only. Errors: none leave this class. A failure is part of the snapshot.
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
  std::string problem;  // the reason why there is no list or no fresh one; empty if the list is fresh
};

class Inventory {
 public:
  // Takes the settings of the inventory. `library` is loaded at the first refresh. `visible` lists the
  // machine's GPUs that belong to this node (empty: all). They are numbered from 0 in that order.
  Inventory(asio::io_context& io, std::string library, std::chrono::milliseconds timeout,
            std::vector<std::uint32_t> visible = {});
  ~Inventory();
  Inventory(const Inventory&) = delete;
  Inventory& operator=(const Inventory&) = delete;

  // Queries the driver and returns after at most the timeout. The object must outlive the coroutine.
  Task<void> refresh();

  [[nodiscard]] const InventorySnapshot& last() const noexcept { return last_; }
  // Returns the reason why there are no GPUs, or no fresh facts about them. An empty string means that the
  // facts are fresh.
  [[nodiscard]] std::string why_no_gpus() const;
  // Returns the GPU with index `index`, or null.
  [[nodiscard]] const GpuFacts* gpu(std::uint32_t index) const noexcept;

 private:
  struct Query;  // state shared with a query's thread, which may be abandoned

  asio::io_context& io_;
  std::string library_;
  std::chrono::milliseconds timeout_;
  std::vector<std::uint32_t> visible_;
  InventorySnapshot last_;
  std::shared_ptr<Query> running_;
};

}  // namespace ckpt::agent
