// SPDX-License-Identifier: Apache-2.0
// Checks every byte of a job. It reads heads, payloads, padding and index of each pack sequentially, and
// compares every content with its name. It also reads each version's file. Everything that versions name must
// exist. Damage is a finding, not an error. Findings name the affected versions. Damaged content is stored
// again when it is put again (JobStore::note_damaged).
//
// Memory: 24 bytes for each record.
// Threads: any, concurrently with writers and readers. A pack that is collected meanwhile is not checked.
// Errors: kIo and others, if the disk cannot be read at all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/store/local/job_store.h"

namespace ckpt::checkpoint_store {

struct Finding {
  std::string where;
  std::string what;
};

struct VersionHealth {
  std::uint64_t number = 0;
  bool restorable = false;
  std::uint64_t damaged_chunks = 0;
  std::string first;  // the first damage that was found
};

struct ScrubReport {
  std::vector<Finding> findings;
  std::vector<VersionHealth> versions;  // the versions, oldest first
  std::uint64_t packs = 0;
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;  // the number of bytes that were read
  [[nodiscard]] bool is_clean() const { return findings.empty(); }
};

Result<ScrubReport> scrub(JobStore& store);

}  // namespace ckpt::checkpoint_store
