// SPDX-License-Identifier: Apache-2.0
// An NVML of one GPU. Its only process allocates memory just after its bytes were queried, `growths_left`
// times.
#include <cstring>

#include "agent/gpus/nvml.h"

namespace nvml = ckpt::agent::nvml;

namespace {

constexpr std::uint64_t kTotal = 1000;
constexpr std::uint64_t kGrowth = 10;
std::uint64_t used = 0;

}  // namespace

extern "C" {

int growths_left = 0;

nvml::Return nvmlInit_v2() {
  return nvml::kSuccess;
}
nvml::Return nvmlShutdown() {
  return nvml::kSuccess;
}
const char* nvmlErrorString(nvml::Return) {
  return "an error";
}
nvml::Return nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::strncpy(text, "1", size);
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 1;
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetHandleByIndex_v2(unsigned, nvml::Device* device) {
  *device = nullptr;
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetUUID(nvml::Device, char* text, unsigned size) {
  std::strncpy(text, "GPU-1", size);
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetName(nvml::Device, char* text, unsigned size) {
  std::strncpy(text, "fake", size);
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetMemoryInfo(nvml::Device, nvml::Memory* memory) {
  *memory = {kTotal, kTotal - used, used};
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetComputeRunningProcesses_v3(nvml::Device, unsigned* count,
                                                     nvml::ProcessInfo* infos) {
  *count = 1;
  infos[0] = {1, used, 0, 0};
  if (growths_left > 0) {
    growths_left--;
    used += kGrowth;
  }
  return nvml::kSuccess;
}
}
