// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/stress/optional_driver.h"

#include <algorithm>

#include "tools/examples/common/gpu.h"

namespace ckpt::examples {
namespace {

// Returns null if this driver has no such function for this version of CUDA.
void* find(const char* name) {
  int version = 0;
  check(cuDriverGetVersion(&version), "cuDriverGetVersion");
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  const CUresult result = cuGetProcAddress(name, &function, std::min(version, CUDA_VERSION),
                                           CU_GET_PROC_ADDRESS_DEFAULT, &status);
  return result == CUDA_SUCCESS ? function : nullptr;
}

std::string name_of(CUresult result) {
  const char* name = nullptr;
  return cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr ? name : "an unknown error";
}

// A sequence of calls that stops at the first failure. A missing function gives CUDA_ERROR_NOT_FOUND.
class Attempt {
 public:
  template <typename Function, typename... Arguments>
  bool operator()(Function* function, Arguments... arguments) {
    if (result_ != CUDA_SUCCESS) return false;
    result_ = function == nullptr ? CUDA_ERROR_NOT_FOUND : function(arguments...);
    return result_ == CUDA_SUCCESS;
  }
  // Returns whether the group works. If it does not, records the group with the reason.
  bool conclude(const char* group, std::vector<std::string>& left_out) const {
    if (result_ != CUDA_SUCCESS) left_out.push_back(std::string(group) + ": " + name_of(result_));
    return result_ == CUDA_SUCCESS;
  }

 private:
  CUresult result_ = CUDA_SUCCESS;
};

void run_graph(const OptionalDriver& driver, Attempt& attempt, CUgraph graph, CUstream stream) {
  CUgraphExec executable = nullptr;
  if (!attempt(driver.cuGraphInstantiateWithFlags, &executable, graph, 0ULL)) return;
  attempt(driver.cuGraphLaunch, executable, stream);
  attempt(&::cuStreamSynchronize, stream);
  attempt(driver.cuGraphExecDestroy, executable);
}

bool try_graphs(OptionalDriver& driver, CUstream stream, CUdeviceptr memory, CUcontext context) {
  Attempt attempt;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUDA_MEMSET_NODE_PARAMS set{};
  set.dst = memory;
  set.elementSize = 1;
  set.width = 1;
  set.height = 1;
  attempt(driver.cuGraphCreate, &graph, 0U);
  attempt(driver.cuGraphAddMemsetNode, &node, graph, nullptr, std::size_t{0}, &set, context);
  run_graph(driver, attempt, graph, stream);
  attempt(driver.cuGraphDestroy, graph);
  return attempt.conclude("graphs", driver.left_out) && driver.cuGraphAddKernelNode != nullptr;
}

bool try_capture(OptionalDriver& driver, CUstream stream, CUdeviceptr memory) {
  Attempt attempt;
  CUgraph graph = nullptr;
  if (attempt(driver.cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) {
    attempt(&::cuMemsetD8Async, memory, static_cast<unsigned char>(1), std::size_t{1}, stream);
    attempt(driver.cuStreamEndCapture, stream, &graph);
    run_graph(driver, attempt, graph, stream);
    attempt(driver.cuGraphDestroy, graph);
  }
  return attempt.conclude("capture", driver.left_out);
}

bool try_pools(OptionalDriver& driver, CUstream stream, CUdevice device) {
  Attempt attempt;
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  CUmemoryPool pool = nullptr;
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  attempt(driver.cuMemAllocAsync, &first, std::size_t{100}, stream);
  attempt(driver.cuMemFreeAsync, first, stream);
  attempt(driver.cuMemPoolCreate, &pool, &properties);
  attempt(driver.cuMemAllocFromPoolAsync, &second, std::size_t{100}, pool, stream);
  attempt(driver.cuMemFreeAsync, second, stream);
  attempt(&::cuStreamSynchronize, stream);
  attempt(driver.cuMemPoolTrimTo, pool, std::size_t{0});
  attempt(driver.cuMemPoolDestroy, pool);
  return attempt.conclude("pools", driver.left_out);
}

bool try_callbacks(OptionalDriver& driver, CUstream stream) {
  Attempt attempt;
  int calls = 0;
  const CUhostFn count = [](void* data) { ++*static_cast<int*>(data); };
  attempt(driver.cuLaunchHostFunc, stream, count, static_cast<void*>(&calls));
  attempt(&::cuStreamSynchronize, stream);
  if (!attempt.conclude("callbacks", driver.left_out)) return false;
  if (calls == 1) return true;
  fail("cuLaunchHostFunc: called " + std::to_string(calls) + " times in place of once");
}

bool try_per_thread_stream(OptionalDriver& driver, CUdeviceptr memory) {
  Attempt attempt;
  attempt(&::cuMemsetD8Async, memory, static_cast<unsigned char>(2), std::size_t{1}, CU_STREAM_PER_THREAD);
  attempt(&::cuStreamSynchronize, CU_STREAM_PER_THREAD);
  return attempt.conclude("per-thread stream", driver.left_out);
}

}  // namespace

OptionalDriver OptionalDriver::probe() {
  OptionalDriver driver;
#define STRESS_OPTIONAL(name) driver.name = reinterpret_cast<decltype(driver.name)>(find(#name));
#include "tests/programs/stress/optional_functions.def"
  CUcontext context = nullptr;
  CUdevice device = 0;
  CUstream stream = nullptr;
  check(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  check(cuCtxGetDevice(&device), "cuCtxGetDevice");
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const LocalMemory memory(1);
  driver.graphs = try_graphs(driver, stream, memory.get(), context);
  driver.capture = driver.graphs && try_capture(driver, stream, memory.get());
  driver.pools = try_pools(driver, stream, device);
  driver.callbacks = try_callbacks(driver, stream);
  driver.per_thread_stream = try_per_thread_stream(driver, memory.get());
  check(cuStreamDestroy(stream), "cuStreamDestroy");
  return driver;
}

}  // namespace ckpt::examples
