// SPDX-License-Identifier: Apache-2.0
// The item driver: the driver, the devices, and whether this tree's device code loads.
#include <dlfcn.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "agent/gpus/nvml.h"
#include "libckpt/base/machine/cores.h"
#include "libckpt/cuda/driver.h"
#include "libckpt/cuda/module.h"
#include "tools/gpu_check/item.h"

namespace ckpt::gpu_check {
namespace {

constexpr const char* kKernels[] = {"ckpt_kernels", "conformance_kernels", "hotset_kernels", "serve_kernels",
                                    "charlm_kernels"};
constexpr const char* kCheckpointFunctions[] = {
    "cuCheckpointProcessLock",   "cuCheckpointProcessCheckpoint", "cuCheckpointProcessRestore",
    "cuCheckpointProcessUnlock", "cuCheckpointProcessGetState",   "cuCheckpointOperationComplete"};

struct Attribute {
  const char* name;
  CUdevice_attribute number;
  bool needed;
};
constexpr Attribute kAttributes[] = {
    {"compute_capability_major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, false},
    {"compute_capability_minor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, false},
    {"multiprocessors", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, false},
    {"virtual_memory_management", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, true},
    {"posix_file_descriptors", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, true},
    {"fabric_handles", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, false},
    {"gpudirect_rdma", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, false},
    {"gpudirect_rdma_with_vmm", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, false},
    {"compute_mode", CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, false}};

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": ") + 2, line.size()));
  }
  return "unknown";
}

Json host_facts() {
  utsname system{};
  ::uname(&system);
  return {{"kernel", std::string(system.sysname) + " " + system.release},
          {"processor", processor()},
          {"cores", usable_cores()},
          {"memory_bytes", static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                               static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))}};
}

Json missing_functions() {
  Json missing = Json::array();
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  for (const char* name : kCheckpointFunctions) {
    if (library == nullptr || ::dlsym(library, name) == nullptr) missing.push_back(name);
  }
  return missing;
}

Result<Json> device_facts(const DriverApi& api, int ordinal, Outcome& outcome) {
  const std::string name = "GPU " + std::to_string(ordinal);
  CUdevice device = 0;
  CKPT_CUDA_TRY(api, cuDeviceGet(&device, ordinal));
  char text[256] = {};
  CKPT_CUDA_TRY(api, cuDeviceGetName(text, sizeof text - 1, device));
  Json facts = {{"name", text}};
  std::size_t bytes = 0;
  CKPT_CUDA_TRY(api, cuDeviceTotalMem_v2(&bytes, device));
  facts["memory_bytes"] = bytes;
  for (const Attribute& attribute : kAttributes) {
    int value = 0;
    if (api.cuDeviceGetAttribute(&value, attribute.number, device) != CUDA_SUCCESS) value = -1;
    facts[attribute.name] = value;
    if (attribute.needed)
      outcome.add(name + " " + attribute.name, value == 1 ? Status::kPassed : Status::kFailed,
                  value == 1 ? "" : "the driver reports " + std::to_string(value));
  }
  return facts;
}

void load_kernels(const DriverApi& api, Outcome& outcome) {
  for (const char* name : kKernels) {
    auto module = Module::load(api, name);
    outcome.add(std::string("device code ") + name, module ? Status::kPassed : Status::kFailed,
                module ? "" : module.error().to_string());
  }
}

}  // namespace

Result<Outcome> check_driver(const Setting&) {
  Outcome outcome;
  outcome.figures["host"] = host_facts();
  CKPT_TRY(api, load_driver());
  CKPT_CUDA_TRY(*api, cuInit(0));
  int version = 0;
  int count = 0;
  CKPT_CUDA_TRY(*api, cuDriverGetVersion(&version));
  CKPT_CUDA_TRY(*api, cuDeviceGetCount(&count));
  outcome.figures["cuda"] = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  outcome.figures["missing_functions"] = missing_functions();
  if (auto nvml = agent::Nvml::create("libnvidia-ml.so.1")) {
    auto driver = (*nvml)->driver_version();
    outcome.figures["driver"] = driver ? *driver : driver.error().to_string();
  }
  Json devices = Json::array();
  for (int i = 0; i < count; i++) {
    CKPT_TRY(facts, device_facts(*api, i, outcome));
    devices.push_back(facts);
  }
  outcome.figures["gpus"] = devices;
  const Nanos begin = now_ns();
  CKPT_TRY(device, Device::open(0));
  outcome.figures["context_ms"] = static_cast<double>(now_ns() - begin) / 1e6;
  const ContextScope scope(device);
  load_kernels(*api, outcome);
  outcome.sum_up();
  return outcome;
}

}  // namespace ckpt::gpu_check
