// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/files/fleeting_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <thread>

namespace ckpt::agent::host {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenGlances{20};
constexpr long kMsPerSecond = 1000;
constexpr long kNsPerMs = 1'000'000;

// Returns nothing for a name that is gone. A file system that does not record when a file was made has no
// fleeting files.
std::optional<milliseconds> age_of_file(const std::string& path) {
  struct statx facts {};
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BTIME, &facts) != 0) return std::nullopt;
  timespec now{};
  if ((facts.stx_mask & STATX_BTIME) == 0 || ::clock_gettime(CLOCK_REALTIME, &now) != 0) return kLasts;
  const milliseconds age{(now.tv_sec - facts.stx_btime.tv_sec) * kMsPerSecond +
                         (now.tv_nsec - static_cast<long>(facts.stx_btime.tv_nsec)) / kNsPerMs};
  return age.count() < 0 ? kLasts : age;  // a clock that was set back
}

bool is_young(const FileFact& fact) {
  const auto age = age_of_file(fact.path);
  return age && *age < kLasts;
}

}  // namespace

void leave_out_fleeting(std::vector<FileFact>& facts) {
  std::vector<const FileFact*> young;
  for (const FileFact& fact : facts) {
    if (has_content(fact.use) && !fact.kernels_own && is_young(fact)) young.push_back(&fact);
  }
  const auto until = std::chrono::steady_clock::now() + kLasts;
  while (!young.empty() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kBetweenGlances);
    std::erase_if(young, [](const FileFact* fact) { return !is_young(*fact); });
  }
  std::erase_if(facts, [](const FileFact& fact) {
    struct stat now {};
    return has_content(fact.use) && ::lstat(fact.path.c_str(), &now) != 0;
  });
}

}  // namespace ckpt::agent::host
