// SPDX-License-Identifier: Apache-2.0
// The facts about the machine and the driver that produced the figures.
#include <dlfcn.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "libckpt/base/clock.h"
#include "libckpt/base/machine/cores.h"
#include "libckpt/cuda/driver.h"
#include "tools/bench/report.h"

namespace ckpt::bench {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "unknown processor";
}

std::string date_now() {
  const std::time_t seconds = static_cast<std::time_t>(wall_clock_ms() / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// Checks whether the driver is the software driver. The device's name need not show that, but the folder of
// the driver's file does.
bool is_software(const DriverApi& api) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(api.cuInit), &info) == 0) return false;
  std::error_code error;
  const auto folder = std::filesystem::canonical(info.dli_fname, error).parent_path();
  return !error && folder.filename() == "cudasim";
}

void ask_driver(Facts& facts) {
  const auto loaded = load_driver();
  if (!loaded) return;
  const DriverApi& api = **loaded;
  if (api.cuInit(0) != CUDA_SUCCESS || api.cuDeviceGetCount(&facts.devices) != CUDA_SUCCESS ||
      facts.devices == 0)
    return;
  api.cuDriverGetVersion(&facts.driver_version);
  CUdevice device = 0;
  char name[256] = {};
  if (api.cuDeviceGet(&device, 0) == CUDA_SUCCESS &&
      api.cuDeviceGetName(name, sizeof name, device) == CUDA_SUCCESS)
    facts.device = name;
  facts.software_driver = is_software(api);
}

}  // namespace

Facts collect_facts(std::span<char* const> command_line) {
  Facts facts;
  for (const char* word : command_line)
    facts.command += (facts.command.empty() ? "" : " ") + std::string(word);
  facts.version = GPUMIGRATE_VERSION;
  facts.date = date_now();
  facts.cpu = cpu_model();
  facts.cores = usable_cores();
  facts.memory_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                       static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
  utsname names{};
  if (::uname(&names) == 0) facts.kernel = names.release;
  (void)::getloadavg(&facts.load, 1);
  ask_driver(facts);
  return facts;
}

}  // namespace ckpt::bench
