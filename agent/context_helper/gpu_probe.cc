// SPDX-License-Identifier: Apache-2.0
#include "agent/context_helper/gpu_probe.h"

#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "libckpt/cuda/driver.h"

namespace ckpt::context_helper {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kBytes = std::size_t{2} << 20;
constexpr unsigned char kPattern = 0x5c;

struct Memory {
  explicit Memory(const DriverApi& its_api) : api(its_api) {}
  ~Memory() {
    if (address != 0) api.cuMemFree_v2(address);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  const DriverApi& api;
  CUdeviceptr address = 0;
};

// Sets the first half of the memory, copies it to the second half, and reads the second half back. This tests
// whether the GPU sets and copies its memory correctly.
Result<void> compute(const Device& device) {
  const ContextScope scope(device);
  const DriverApi& api = device.api();
  Memory memory(api);  // declared after the context, so that the memory is freed before the context is
                       // destroyed
  CKPT_CUDA_TRY(api, cuMemAlloc_v2(&memory.address, kBytes));
  constexpr std::size_t kHalf = kBytes / 2;
  CKPT_CUDA_TRY(api, cuMemsetD8_v2(memory.address, kPattern, kHalf));
  CKPT_CUDA_TRY(api, cuMemcpyDtoD_v2(memory.address + kHalf, memory.address, kHalf));
  CKPT_CUDA_TRY(api, cuCtxSynchronize());
  std::vector<unsigned char> read(kHalf);
  CKPT_CUDA_TRY(api, cuMemcpyDtoH_v2(read.data(), memory.address + kHalf, kHalf));
  if (std::all_of(read.begin(), read.end(), [](unsigned char byte) { return byte == kPattern; })) return ok();
  return Error(ErrorCode::kCorrupt,
               "The data that was read from the GPU's memory differs from the data that was written to it");
}

// Checks whether an error is evidence against the GPU. A context that cannot be created is not evidence,
// because another process may use the GPU exclusively. It is evidence if the driver reports a fault.
bool implicates_gpu(const Error& error, bool had_context) {
  if (error.code() == ErrorCode::kCorrupt) return true;
  if (error.domain() != ErrorDomain::kCuda) return false;
  const auto result = static_cast<CUresult>(error.native());
  return is_sticky(result) && (had_context || result != CUDA_ERROR_DEVICE_UNAVAILABLE);
}

}  // namespace

int probe_gpu() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto device = Device::open(0);
  Result<void> outcome = device ? compute(*device) : Result<void>(device.error());
  const char* result = "passed";
  if (!outcome) result = implicates_gpu(outcome.error(), device.has_value()) ? "failed" : "none";
  const std::string detail = outcome ? std::string() : outcome.error().to_string();
  const Json line = {{"gpu_probe", {{"result", result}, {"detail", detail}}}};
  std::printf("%s\n", line.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  return outcome ? 0 : 1;
}

}  // namespace ckpt::context_helper
