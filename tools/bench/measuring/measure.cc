// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/measuring/measure.h"

#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

namespace ckpt::bench {
namespace {

constexpr std::string_view kDeviceProgram = "cudasim-device";

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Checks whether the process is a software device of this bench. Such a device shares the bench's state
// folder.
bool is_device_of(const std::filesystem::path& process, const std::string& marker) {
  std::error_code error;
  if (std::filesystem::read_symlink(process / "exe", error).filename() != kDeviceProgram) return false;
  return ('\0' + content_of(process / "environ")).find('\0' + marker + '\0') != std::string::npos;
}

std::vector<pid_t> software_devices() {
  const char* folder = std::getenv("CUDASIM_DIR");
  if (folder == nullptr) return {};
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (is_device_of(entry.path(), "CUDASIM_DIR=" + std::string(folder)))
      found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

}  // namespace

Result<std::vector<Runs>> interleave(unsigned pairs, const std::vector<Side>& sides) {
  std::vector<Runs> runs(sides.size());
  for (const Side& side : sides) {
    CKPT_TRYV(side());
  }
  for (unsigned pair = 0; pair < pairs; ++pair) {
    for (std::size_t i = 0; i < sides.size(); ++i) {
      CKPT_TRY(value, sides[i]());
      runs[i].push_back(value);
    }
  }
  return runs;
}

Nanos thread_cpu_ns() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * Nanos{1'000'000'000} + time.tv_nsec;
}

CpuMeter::CpuMeter(std::vector<pid_t> others) : clocks_{CLOCK_PROCESS_CPUTIME_ID} {
  for (const pid_t device : software_devices()) others.push_back(device);
  for (const pid_t pid : others) {
    clockid_t clock{};
    if (::clock_getcpuclockid(pid, &clock) == 0) clocks_.push_back(clock);
  }
  restart();
}

Nanos CpuMeter::now() const {
  Nanos total = 0;
  for (const clockid_t clock : clocks_) {
    timespec time{};
    if (::clock_gettime(clock, &time) == 0) total += time.tv_sec * Nanos{1'000'000'000} + time.tv_nsec;
  }
  return total;
}

Nanos CpuMeter::elapsed() const {
  return now() - start_;
}

}  // namespace ckpt::bench
