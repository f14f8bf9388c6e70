// SPDX-License-Identifier: Apache-2.0
// gpu-check: tests which parts of gpumigrate work on this machine's GPU. It needs no network, no packages and
// no other files than this folder. Exit status: 0 nothing failed, or there is no GPU; 1 a test failed; 64
// usage.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "libckpt/base/fd.h"
#include "libckpt/command_line/command_line.h"
#include "libckpt/cuda/driver.h"
#include "tools/gpu_check/report.h"

namespace ckpt::gpu_check {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 64;
constexpr Nanos kSecond = 1'000'000'000;
constexpr int kDetectSeconds = 60;
constexpr int kMinSeconds = 3;
constexpr const char* kSoftwareDevices = "2";
constexpr const char* kSoftwareMemory = "4GiB";
constexpr int kSoftwareSlowness = 4;  // the factor for time limits on the software GPU, which computes on the
                                      // processors that all other work uses

constexpr Item kItems[] = {
#define GPU_CHECK_ITEM(name, seconds, question) {#name, question, seconds, &check_##name},
#define GPU_CHECK_EXTRA(name, seconds, question) {#name, question, seconds, &check_##name, false},
#include "tools/gpu_check/items.def"
#undef GPU_CHECK_ITEM
};

struct Options {
  bool software = false;
  bool quick = false;
  bool keep = false;
  int budget = 540;
  std::string json;
  std::string markdown;
  std::vector<std::string> only;
};

// Finds the GPUs and the driver's version. It runs like an item, because the first call into a driver may
// also hang.
Result<Outcome> find_gpu(const Setting&) {
  Outcome outcome;
  outcome.status = Status::kImpossible;
  auto api = load_driver();
  if (!api) {
    outcome.reason = api.error().to_string();
    return outcome;
  }
  const DriverApi& driver = **api;
  int count = 0;
  int version = 0;
  const CUresult code = driver.cuInit(0);
  if (code != CUDA_SUCCESS) {
    outcome.reason = cuda_error(driver, code, "cuInit").to_string();
    return outcome;
  }
  CUdevice device = 0;
  char name[256] = {};
  if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0 ||
      driver.cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
      driver.cuDeviceGetName(name, sizeof name - 1, device) != CUDA_SUCCESS ||
      driver.cuDriverGetVersion(&version) != CUDA_SUCCESS) {
    outcome.reason = "the driver shows no GPU";
    return outcome;
  }
  outcome.status = Status::kPassed;
  outcome.reason = std::to_string(count) + " x " + name + ", CUDA " + std::to_string(version / 1000) + "." +
                   std::to_string(version % 1000 / 10);
  return outcome;
}
constexpr Item kFindGpu{"gpu", "Is there a GPU", kDetectSeconds, &find_gpu};

std::string software_library(const std::string& programs) {
  return std::filesystem::path(programs + "/../lib/cudasim").lexically_normal();
}

void use_software_gpu(const Setting& setting) {
  ::setenv("CUDASIM_DIR", (setting.work + "/gpu").c_str(), 1);
  ::setenv("CUDASIM_DEVICES", kSoftwareDevices, 1);
  ::setenv("CUDASIM_MEMORY", kSoftwareMemory, 1);
  ::setenv("GPUMIGRATE_SOFTWARE_GPU", "1", 1);
}

// Starts this program again with the library path. The loader reads LD_LIBRARY_PATH only when a program
// starts, and the software driver must be found.
Result<void> start_again_with(const std::string& library, char** argv) {
  const char* now = std::getenv("LD_LIBRARY_PATH");
  if (now != nullptr && library == now) return ok();
  ::setenv("LD_LIBRARY_PATH", library.c_str(), 1);
  ::execv("/proc/self/exe", argv);
  return Error::from_errno("Cannot start /proc/self/exe again");
}

bool wanted(const Options& options, const Item& item) {
  if (options.only.empty()) return item.by_default;
  return std::find(options.only.begin(), options.only.end(), item.name) != options.only.end();
}

Nanos limit_of(const Item& item, const Options& options) {
  return item.seconds * kSecond * (options.software ? kSoftwareSlowness : 1);
}

// Returns the time limit of an item. The last item may leave the driver in a bad state, and its time is
// reserved until it runs.
Nanos time_for(std::size_t index, const Options& options, Nanos deadline) {
  constexpr std::size_t kLast = std::size(kItems) - 1;
  Nanos left = deadline - now_ns();
  if (index != kLast && wanted(options, kItems[kLast])) left -= kItems[kLast].seconds * kSecond;
  return std::min(limit_of(kItems[index], options), left);
}

void run_items(const Options& options, const Setting& setting, Supervisor& supervisor, Report& report) {
  const Nanos deadline = now_ns() + options.budget * kSecond;
  for (std::size_t i = 0; i < std::size(kItems) && !supervisor.interrupted(); i++) {
    if (!wanted(options, kItems[i])) continue;
    Line line{&kItems[i], {}};
    const Nanos time = time_for(i, options, deadline);
    if (time < kMinSeconds * kSecond) {
      line.ended.outcome.status = Status::kImpossible;
      line.ended.outcome.reason = "the time limit for all items was reached";
    } else {
      line.ended = supervisor.run(kItems[i], setting, time);
    }
    std::printf("%s\n", text_of(line).c_str());
    std::fflush(stdout);
    report.lines.push_back(std::move(line));
  }
}

Result<void> write_reports(const Options& options, const Report& report) {
  if (!options.json.empty()) {
    const std::string text = to_json(report).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
    CKPT_TRYV(write_file_durably(options.json, text, 0644));
  }
  if (!options.markdown.empty()) {
    CKPT_TRYV(write_file_durably(options.markdown, to_markdown(report), 0644));
  }
  return ok();
}

Result<int> check(const Options& options, char** argv) {
  Setting setting;
  setting.programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  if (options.software) {
    CKPT_TRYV(start_again_with(software_library(setting.programs), argv));
  }
  // The path must be short, because the paths of Unix sockets in this folder have a length limit.
  setting.work = "/tmp/gc-XXXXXX";
  if (::mkdtemp(setting.work.data()) == nullptr)
    return Error::from_errno("Cannot create a folder like " + setting.work);
  setting.software = options.software;
  setting.quick = options.quick;
  ::setenv("GPUMIGRATE_KEEP", "1", 1);  // a cluster's logs are kept until the whole folder is removed
  if (options.software) {
    use_software_gpu(setting);
  } else {
    ::setenv("GPUMIGRATE_SOFTWARE_GPU", "0", 1);
  }
  CKPT_TRY(supervisor, Supervisor::create());
  Report report;
  const Nanos begin = now_ns();
  const Ended found = supervisor.run(kFindGpu, setting, kDetectSeconds * kSecond);
  report.software = options.software;
  report.driver = found.outcome.status == Status::kPassed ? found.outcome.reason : "this machine";
  if (found.outcome.status == Status::kPassed) {
    std::printf("%s%s\n", report.driver.c_str(),
                options.software ? " (software: no claim about a real GPU)" : "");
    std::fflush(stdout);
    run_items(options, setting, supervisor, report);
  } else if (found.outcome.status == Status::kImpossible) {
    report.no_gpu = found.outcome.reason;
    std::printf(
        "No GPU: %s\nNothing to check here; `gpu-check --software` tries the same on the software GPU.\n",
        report.no_gpu.c_str());
  } else {
    report.lines.push_back({&kFindGpu, found});
    std::printf("%s\n", text_of(report.lines.back()).c_str());
  }
  report.seconds = static_cast<double>(now_ns() - begin) / 1e9;
  CKPT_TRYV(write_reports(options, report));
  if (options.keep) {
    std::printf("files: %s\n", setting.work.c_str());
  } else {
    std::error_code error;
    std::filesystem::remove_all(setting.work, error);
  }
  return any_failed(report) || supervisor.interrupted() ? kFailed : 0;
}

int run(int argc, char** argv) {
  Options options;
  std::vector<std::string> names;
  for (const Item& item : kItems) names.emplace_back(item.name);
  CommandLine app("Checks which functions of gpumigrate work on this machine's GPU");
  app.add_flag("--software", options.software, "Run on the software GPU instead");
  app.add_flag("--quick", options.quick, "Small sizes");
  app.add_flag("--keep", options.keep, "Keep the folder with logs");
  app.add_option("--only", options.only,
                 "Run only these items; nccl, move_torchlike and those of pytorch run only if they are named")
      .separated_by(',')
      .one_of(names);
  app.add_option("--budget", options.budget, "Seconds for all items").in_range(10, 3600).shows_default();
  app.add_option("--json", options.json, "Write the report as JSON to this file");
  app.add_option("--markdown", options.markdown, "Write a table as Markdown to this file");
  if (const auto end = app.parse(argc, argv)) return end->print() == 0 ? 0 : kUsage;
  const auto code = check(options, argv);
  if (code) return *code;
  std::fprintf(stderr, "gpu-check: %s\n", code.error().to_string().c_str());
  return kFailed;
}

}  // namespace
}  // namespace ckpt::gpu_check

int main(int argc, char** argv) {
  return ckpt::gpu_check::run(argc, argv);
}
