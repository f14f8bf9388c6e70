// SPDX-License-Identifier: Apache-2.0
// The target's memory where no standby has any (the transparent way): one new exportable allocation for each region of the source's plan,
// under the same id, so that the process which gets the descriptors knows what belongs where.
// Threads: none inside. Ownership: the allocations live while their `mapping` or a descriptor does. Errors: kOutOfMemory says how much was
// wanted; kRefused for a plan whose regions are not moved whole.
#pragma once

#include <vector>

#include "agent/mover/session.h"
#include "libckpt/image/plan.h"

namespace ckpt::mover {

struct MadeRegion {
  messages::RegionInfo info;  // bytes as allocated
  AttachedRegion region;
  UniqueFd descriptor;
};

// Content undefined (the engine writes all of it, zeroes too).
Result<std::vector<MadeRegion>> make_regions(const Gpu& gpu, const image::Plan& plan);

}  // namespace ckpt::mover
