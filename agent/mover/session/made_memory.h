// SPDX-License-Identifier: Apache-2.0
// The target's memory if no standby has memory (transparent mode). Each region of the source's plan has one
// new exportable allocation under the same id. Therefore the process that gets the descriptors knows the
// address of each allocation.
// Threads: none inside. Any thread may use ReclaimTracker. Ownership: an allocation exists as long as its
// `mapping` or a descriptor exists. Errors: kOutOfMemory with the requested amount. kRefused for a plan whose
// regions are not moved completely.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "agent/mover/session/session.h"
#include "libckpt/protocol/wire/mover_values.h"
#include "libckpt/store/plan.h"

namespace ckpt::mover {

struct MadeRegion {
  messages::RegionInfo info;  // region with its allocated size in bytes
  AttachedRegion region;
  UniqueFd descriptor;
};

// Counts the regions that a session has created, and the regions that the job has freed since. An allocation
// that finds no memory waits until the freed regions are released. This node must release them, because
// copies into them may be in progress. Each process that has a descriptor must also release them.
class ReclaimTracker {
 public:
  void made(std::uint64_t regions);           // records new regions of the job
  void dropped();                             // records a region that the job has freed
  void release_elsewhere(std::uint64_t all);  // records the number of freed regions that no other process
                                              // holds, in total
  void end();                                 // makes every wait() return
  // Waits until something has changed. Returns false if there is nothing to wait for.
  bool wait();

 private:
  friend class Allocation;
  void count(bool allocated);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t changes_ = 0;
  std::uint64_t allocations_ = 0;  // number of existing allocations
  std::uint64_t kept_ = 0;         // number of allocations that still belong to the job
  std::uint64_t dropped_ = 0;
  std::uint64_t released_ = 0;
  bool ending_ = false;
};

// Creates memory with undefined content. The engine writes all of it, including zeroes.
Result<std::vector<MadeRegion>> make_regions(const Gpu& gpu, const image::Plan& plan,
                                             const std::shared_ptr<ReclaimTracker>& reclaims);

}  // namespace ckpt::mover
