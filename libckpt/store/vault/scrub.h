// SPDX-License-Identifier: Apache-2.0
// Looks at every byte of a job. Of each pack it reads heads, payloads, padding and index from front to back,
// and compares every content with its name. It also reads each version's file. Everything that versions name
// must be there. Damage is a finding, not an error; findings name the versions that it costs. What was found
// damaged is stored again when it comes again (JobStore::note_damaged).
//
// Memory: 24 bytes for each record. Threads: any; beside writers and readers. A pack that is collected
// meanwhile is not looked at. Errors: kIo and others, where the disk cannot be read at all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/store/vault/job_store.h"

namespace ckpt::vault {

struct Finding {
  std::string where;
  std::string what;
};

struct VersionHealth {
  std::uint64_t number = 0;
  bool restorable = false;
  std::uint64_t damaged_chunks = 0;
  std::string first;  // what is damaged
};

struct ScrubReport {
  std::vector<Finding> findings;
  std::vector<VersionHealth> versions;  // oldest first
  std::uint64_t packs = 0;
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;  // read
  [[nodiscard]] bool is_clean() const { return findings.empty(); }
};

Result<ScrubReport> scrub(JobStore& store);

}  // namespace ckpt::vault
