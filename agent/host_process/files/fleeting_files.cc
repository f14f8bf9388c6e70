// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/files/fleeting_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <optional>
#include <set>
#include <string>
#include <thread>

namespace ckpt::agent::host {
namespace {

constexpr std::chrono::milliseconds kBetweenGlances{20};
constexpr std::int64_t kNsOfSecond = 1'000'000'000;
constexpr std::int64_t kMaxAgeSeconds = 3600;

// Returns the file's age, or nothing if the file no longer exists. A file of unknown age counts as lasting.
std::optional<std::chrono::nanoseconds> age_of_file(const std::string& path, std::chrono::nanoseconds lasts) {
  struct statx facts {};
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BTIME, &facts) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    return lasts;
  }
  timespec now{};
  if ((facts.stx_mask & STATX_BTIME) == 0 || ::clock_gettime(CLOCK_REALTIME, &now) != 0) return lasts;
  const std::int64_t made = facts.stx_btime.tv_sec;
  // The time is in the future if the clock was set back. The second case keeps the product below small.
  if (made > now.tv_sec || made < now.tv_sec - kMaxAgeSeconds) return lasts;
  const std::chrono::nanoseconds age((now.tv_sec - made) * kNsOfSecond + now.tv_nsec -
                                     static_cast<std::int64_t>(facts.stx_btime.tv_nsec));
  return age.count() < 0 ? lasts : age;
}

void sleep_briefly() {
  std::this_thread::sleep_for(kBetweenGlances);
}

}  // namespace

bool leave_out_fleeting(std::vector<FileFact>& facts, const Glances& glances) {
  std::vector<std::string> young;
  for (const FileFact& fact : facts) {
    if (has_content(fact.use) && !fact.kernels_own) young.push_back(fact.path);
  }
  std::set<std::string> gone;
  const auto glance = [&young, &gone, &glances] {
    std::erase_if(young, [&gone, &glances](const std::string& path) {
      const auto age = age_of_file(path, glances.lasts);
      if (!age) gone.insert(path);
      return !age || *age >= glances.lasts;
    });
  };
  const auto until = std::chrono::steady_clock::now() + glances.lasts;
  for (glance(); !young.empty() && std::chrono::steady_clock::now() < until; glance())
    glances.wait ? glances.wait() : sleep_briefly();
  return std::erase_if(facts, [&gone](const FileFact& fact) { return gone.contains(fact.path); }) > 0;
}

}  // namespace ckpt::agent::host
