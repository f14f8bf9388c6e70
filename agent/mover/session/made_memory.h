// SPDX-License-Identifier: Apache-2.0
// The target's memory where no standby has any (transparent mode). There is one new exportable allocation for
// each region of the source's plan, under the same id. So the process that gets the descriptors knows the
// address of each.
// Threads: none inside; ReclaimTracker: any. Ownership: the allocations live while their `mapping` or a
// descriptor does. Errors: kOutOfMemory with the amount that was wanted; kRefused for a plan whose regions
// are not moved whole.
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
  messages::RegionInfo info;  // bytes as allocated
  AttachedRegion region;
  UniqueFd descriptor;
};

// Counts the regions that a session has made, and those that the job has freed since. An allocation that
// finds no memory waits until these are released: here, where copies into them may be under way, and in each
// process that has a descriptor.
class ReclaimTracker {
 public:
  void made(std::uint64_t regions);          // the job has them now
  void dropped();                            // the job has freed one
  void let_go_elsewhere(std::uint64_t all);  // all freed regions so far that no other process holds
  void end();                                // every wait() returns
  // Waits until something has changed; false: there is nothing to wait for.
  bool wait();

 private:
  friend class Allocation;
  void count(bool allocated);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t changes_ = 0;
  std::uint64_t allocations_ = 0;  // number of existing ones
  std::uint64_t kept_ = 0;         // number of those that the job has
  std::uint64_t dropped_ = 0;
  std::uint64_t let_go_ = 0;
  bool ending_ = false;
};

// Makes memory with undefined content (the engine writes all of it, zeroes too).
Result<std::vector<MadeRegion>> make_regions(const Gpu& gpu, const image::Plan& plan,
                                             const std::shared_ptr<ReclaimTracker>& reclaims);

}  // namespace ckpt::mover
