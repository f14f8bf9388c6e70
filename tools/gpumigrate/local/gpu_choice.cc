// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/local/gpu_choice.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>

namespace ckpt::cli {
namespace {

constexpr const char* kDriver = "libcuda.so.1";

// Returns the number of GPUs that the installed driver finds. Returns 0 without a driver, or for the software
// driver.
int real_gpus(const std::string& software_library) {
  void* driver = ::dlopen(kDriver, RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return 0;
  using Init = int (*)(unsigned);
  using GetCount = int (*)(int*);
  const auto init = reinterpret_cast<Init>(::dlsym(driver, "cuInit"));
  const auto get_count = reinterpret_cast<GetCount>(::dlsym(driver, "cuDeviceGetCount"));
  Dl_info info{};
  std::error_code error;
  const bool software = init != nullptr && ::dladdr(reinterpret_cast<void*>(init), &info) != 0 &&
                        std::filesystem::equivalent(std::filesystem::path(info.dli_fname).parent_path(),
                                                    software_library, error);
  int count = 0;
  if (software || init == nullptr || get_count == nullptr || init(0) != 0 || get_count(&count) != 0) return 0;
  return count;
}

}  // namespace

Result<GpuChoice> choose_gpu(const std::string& program_folder) {
  GpuChoice choice;
  choice.library = (std::filesystem::path(program_folder) / "../lib/cudasim").lexically_normal();
  const char* wish = std::getenv("GPUMIGRATE_SOFTWARE_GPU");
  const std::string wanted = wish == nullptr ? "" : wish;
  if (wanted == "1") {
    choice.software = true;
    choice.reason = "GPUMIGRATE_SOFTWARE_GPU=1";
  } else if (wanted != "0") {
    const int count = real_gpus(choice.library);
    choice.software = count == 0;
    choice.reason = count == 0 ? "no GPU found" : std::to_string(count) + " GPUs found";
  } else {
    choice.reason = "GPUMIGRATE_SOFTWARE_GPU=0";
  }
  if (choice.software && ::access((choice.library + "/" + kDriver).c_str(), R_OK) != 0) {
    return Error(ErrorCode::kNotFound, "This machine has no GPU, and " + choice.library +
                                           " has no software GPU: build the target cudasim");
  }
  return choice;
}

std::vector<std::string> gpu_environment(const GpuChoice& choice, const std::string& node_folder, int gpus,
                                         const std::string& memory) {
  const char* others = std::getenv("LD_LIBRARY_PATH");
  // Jobs get their node's library path, not their submitter's. They must also find a driver that only this
  // path finds.
  if (!choice.software) {
    return others == nullptr || *others == '\0' ? std::vector<std::string>()
                                                : std::vector{"LD_LIBRARY_PATH=" + std::string(others)};
  }
  const bool more = others != nullptr && *others != '\0' && choice.library != others;
  // NVIDIA's NCCL finds no software GPU, so the path includes the software NCCL.
  const std::string nccl = choice.library + "/../ncclsim";
  const bool has_nccl = ::access((nccl + "/libnccl.so.2").c_str(), R_OK) == 0;
  return {
      "LD_LIBRARY_PATH=" + choice.library +
          (has_nccl ? ":" + std::filesystem::path(nccl).lexically_normal().string() : "") +
          (more ? ":" + std::string(others) : ""),
      "CUDASIM_DIR=" + node_folder + "/gpu", "CUDASIM_DEVICES=" + std::to_string(gpus),
      "CUDASIM_MEMORY=" + memory,
      // GPUs of nodes on one machine have the same bus ids. So NCCL must treat the nodes as different hosts.
      "NCCL_HOSTID=" + std::filesystem::path(node_folder).filename().string()};
}

}  // namespace ckpt::cli
