// SPDX-License-Identifier: Apache-2.0
// The packs that each version of a job needs, and how much of them: by names alone, no chunk is read.
// Threads: any. Errors: kIo and others; lists that are damaged are no error here, their version is not whole.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "libckpt/store/vault/job_store.h"

namespace ckpt::vault {

struct VersionUse {
  std::uint64_t number = 0;
  bool whole = true;  // all that it names is in a pack; only reading shows whether it is intact
  std::map<std::uint64_t, std::uint64_t>
      packs;  // stored bytes of this version in each; what versions share counts for each of them
};

// Oldest first.
Result<std::vector<VersionUse>> uses_of(JobStore& store);

}  // namespace ckpt::vault
