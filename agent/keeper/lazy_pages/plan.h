// SPDX-License-Identifier: Apache-2.0
// The missing memory of each restored process, with the locations of its bytes. The agent writes this plan
// into the folder of the image, for gpumigrate-lazy-pages. The file: magic u64 | version u32 | count u32 |
// count x MissingRange.
// Threads: any. Errors: kCorrupt for a file that is no plan, kIo.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::lazy_pages {

inline constexpr std::uint64_t kPageBytes = 4096;
inline constexpr const char* kPlanName = "lazy-pages.plan";

// A range of whole pages inside one mapping of the process.
struct MissingRange {
  std::uint32_t process = 0;     // id of the process in its own PID namespace
  std::uint32_t pages_file = 0;  // number N of the file pages-N.img
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // offset of the range in the file of pages
};

Result<void> write_plan(const std::string& folder, const std::vector<MissingRange>& ranges);
Result<std::vector<MissingRange>> read_plan(const std::string& folder);

}  // namespace ckpt::lazy_pages
