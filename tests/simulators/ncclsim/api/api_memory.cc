// SPDX-License-Identifier: Apache-2.0
// Memory that NCCL allocates, and buffers that are registered.
#include <map>
#include <mutex>

#include "tests/simulators/ncclsim/api/api.h"
#include "tests/simulators/ncclsim/comm/init.h"

using ncclsim::Communicator;
using ncclsim::DeviceMemory;

namespace {

struct Allocation {
  CUcontext context = nullptr;
  std::unique_ptr<DeviceMemory> memory;
};

std::mutex& allocations_lock() {
  static auto* lock = new std::mutex;
  return *lock;
}

std::map<void*, Allocation>& allocations() {
  static auto* all = new std::map<void*, Allocation>;
  return *all;
}

}  // namespace

NCCLSIM_API(ncclResult_t, ncclMemAlloc, void** out, size_t bytes) {
  NCCLSIM_CHECK(out != nullptr && bytes > 0, ncclInvalidArgument, "ncclMemAlloc of no bytes, or to NULL");
  Allocation allocation;
  CUdevice device = 0;
  NCCLSIM_TRY(ncclsim::current_device(&allocation.context, &device));
  NCCLSIM_TRY(DeviceMemory::make(device, bytes, &allocation.memory));
  *out = reinterpret_cast<void*>(allocation.memory->address());
  std::lock_guard<std::mutex> lock(allocations_lock());
  allocations()[*out] = std::move(allocation);
  return ncclSuccess;
}

NCCLSIM_API(ncclResult_t, ncclMemFree, void* memory) {
  if (memory == nullptr) return ncclSuccess;
  std::lock_guard<std::mutex> lock(allocations_lock());
  const auto found = allocations().find(memory);
  NCCLSIM_CHECK(found != allocations().end(), ncclUnhandledCudaError, "%p is no memory of ncclMemAlloc",
                memory);
  const ncclsim::Current current(found->second.context);
  allocations().erase(found);
  return ncclSuccess;
}

NCCLSIM_API(ncclResult_t, ncclCommRegister, const ncclComm_t handle, void* buffer, size_t bytes, void** out) {
  Communicator* communicator = nullptr;
  NCCLSIM_TRY(ncclsim::find(handle, &communicator));
  NCCLSIM_CHECK(buffer != nullptr && out != nullptr && bytes > 0, ncclInvalidArgument,
                "an argument is NULL or 0");
  NCCLSIM_TRY(communicator->ensure_ready());
  // Registration has no benefit in this library; the program only must deregister each buffer.
  auto registration = std::make_unique<char>();
  *out = registration.get();
  communicator->registered[*out] = std::move(registration);
  return ncclSuccess;
}

NCCLSIM_API(ncclResult_t, ncclCommDeregister, const ncclComm_t handle, void* registration) {
  Communicator* communicator = nullptr;
  NCCLSIM_TRY(ncclsim::find(handle, &communicator));
  if (registration == nullptr) return ncclSuccess;
  NCCLSIM_CHECK(communicator->registered.erase(registration) > 0, ncclInvalidUsage,
                "Deregister: Could not find handle");
  return ncclSuccess;
}
