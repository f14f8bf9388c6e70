// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/metrics/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"

namespace ckpt::metrics {
namespace {

constexpr std::size_t kMaxStatmBytes = 4096;

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

void read_cpu(Series& series) {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0)
    series.add(seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime));
}

void read_memory(Series& series) {
  const auto text = read_file("/proc/self/statm", kMaxStatmBytes);
  unsigned long long all = 0;
  unsigned long long resident = 0;
  if (text && std::sscanf(text->c_str(), "%llu %llu", &all, &resident) == 2)
    series.add(static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)));
}

void read_open_files(Series& series) {
  std::error_code code;
  double count = 0;
  for (std::filesystem::directory_iterator at("/proc/self/fd", code), end; !code && at != end;
       at.increment(code))
    ++count;
  if (!code) series.add(count - 1);  // excludes the descriptor of the folder itself
}

void read_most_files(Series& series) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) series.add(static_cast<double>(limit.rlim_cur));
}

}  // namespace

void add_process_metrics(Registry& registry, const std::string& component) {
  registry.gauge("gpumigrate_build_info", "1; the version that is running.", {"component", "version"},
                 [component](Series& series) {
                   series.add({component, GPUMIGRATE_VERSION}, 1);
                 });
  registry.gauge("process_start_time_seconds", "When the process started, in Unix time.", {},
                 [start = static_cast<double>(wall_clock_ms()) / 1e3](Series& series) { series.add(start); });
  registry.observe(Kind::kCounter, "process_cpu_seconds_total", "CPU time of the process, user and system.",
                   {}, read_cpu);
  registry.gauge("process_resident_memory_bytes", "Resident memory of the process.", {}, read_memory);
  registry.gauge("process_open_fds", "Open file descriptors of the process.", {}, read_open_files);
  registry.gauge("process_max_fds", "File descriptors that the process may open.", {}, read_most_files);
}

}  // namespace ckpt::metrics
