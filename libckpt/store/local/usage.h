// SPDX-License-Identifier: Apache-2.0
// The packs that each version of a job needs, and the bytes in each. Only names are used, and no chunk is
// read.
// Threads: any. Errors: kIo and others. Damaged lists are not an error here; their version is not whole.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "libckpt/store/local/job_store.h"

namespace ckpt::checkpoint_store {

struct VersionUse {
  std::uint64_t number = 0;
  bool whole = true;  // whether every named record is in a pack; only reading shows whether a record is
                      // intact
  std::map<std::uint64_t, std::uint64_t>
      packs;  // the version's stored bytes in each pack; shared records count for each version
};

// Returns the use by each version, oldest first.
Result<std::vector<VersionUse>> uses_of(JobStore& store);

}  // namespace ckpt::checkpoint_store
