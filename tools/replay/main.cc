// SPDX-License-Identifier: Apache-2.0
// gpumigrate-replay: makes the driver calls of a trace again (--help).
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "libckpt/command_line/command_line.h"
#include "tools/replay/replay.h"

namespace ckpt::replay {
namespace {

constexpr int kDiffers = 1;
constexpr int kFailed = 5;
constexpr int kUsage = 64;

int fail(const std::string& why, int code) {
  std::fprintf(stderr, "gpumigrate-replay: %s\n", why.c_str());
  return code;
}

// Beside this program's folder: ../lib/kernels; the software driver takes the module, NVIDIA's the fat binary.
std::string find_kernels() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  const std::string program(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  const char* named = std::getenv("CKPT_KERNEL_DIR");
  const std::string folder =
      named != nullptr ? std::string(named) : program.substr(0, program.rfind('/')) + "/../lib/kernels";
  const char* software = std::getenv("CUDASIM_DIR");
  const std::string fat = folder + "/replay_kernels.fatbin";
  return software == nullptr && ::access(fat.c_str(), R_OK) == 0 ? fat : folder + "/replay_kernels.so";
}

nlohmann::ordered_json to_json(const Trace& trace, const Replayed& replayed) {
  nlohmann::ordered_json out = {{"traced", trace.calls.size()},
                                {"driver", trace.driver_version},
                                {"is_cut", trace.is_cut},
                                {"replayed", replayed.calls},
                                {"functions", replayed.by_function},
                                {"differences", nlohmann::ordered_json::array()},
                                {"left_out", nlohmann::ordered_json::array()}};
  for (const auto& [function, differences] : replayed.differences) {
    for (const Difference& one : differences)
      out["differences"].push_back({{"function", function},
                                    {"traced", one.traced},
                                    {"answered", one.answered},
                                    {"count", one.count},
                                    {"first_line", one.line}});
  }
  for (const auto& [what, count] : replayed.left_out)
    out["left_out"].push_back({{"function", what.first}, {"count", count}, {"reason", what.second}});
  return out;
}

void print(const Trace& trace, const Replayed& replayed) {
  std::printf("%llu of %zu calls of %zu functions were made again\n",
              static_cast<unsigned long long>(replayed.calls), trace.calls.size(),
              replayed.by_function.size());
  if (trace.is_cut) std::printf("the trace's last line is cut\n");
  for (const auto& [function, differences] : replayed.differences) {
    for (const Difference& one : differences)
      std::printf("%s: %d in the trace, %d here (%llu times, first in line %zu)\n", function.c_str(),
                  one.traced, one.answered, static_cast<unsigned long long>(one.count), one.line);
  }
  for (const auto& [what, count] : replayed.left_out)
    std::printf("%s was left out %llu times: %s\n", what.first.c_str(),
                static_cast<unsigned long long>(count), what.second.c_str());
}

int run(int argc, char** argv) {
  CommandLine app(
      "Makes the driver calls of a trace (GPUMIGRATE_TRACE) again on the driver that is here, and compares "
      "the answers. "
      "An empty kernel runs in place of the program's. Ends with 1 if an answer differs.");
  std::string file;
  bool as_json = false;
  app.add_option("--trace", file, "The trace: FILE.PID");
  app.add_flag("--json", as_json, "Prints a JSON object");
  if (const auto end = app.parse(argc, argv))
    return end->is_mistake() ? fail(end->message, kUsage) : end->print();
  if (file.empty()) return fail("--trace FILE.PID is needed", kUsage);
  const auto trace = read_trace(file);
  if (!trace) return fail(trace.error().message(), kFailed);
  const auto replayed = replay(*trace, find_kernels());
  if (!replayed) return fail(replayed.error().message(), kFailed);
  if (as_json)
    std::printf("%s\n", to_json(*trace, *replayed).dump(1).c_str());
  else
    print(*trace, *replayed);
  return replayed->differences.empty() ? 0 : kDiffers;
}

}  // namespace
}  // namespace ckpt::replay

int main(int argc, char** argv) {
  return ckpt::replay::run(argc, argv);
}
