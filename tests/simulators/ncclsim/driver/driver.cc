// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/driver/driver.h"

#include <dlfcn.h>

#include <string>

namespace ncclsim {
namespace {

Driver& loaded() {
  static Driver functions;
  return functions;
}

// Loads the driver. Returns the error text, or "".
std::string load() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return "there is no libcuda.so.1";
#define NCCLSIM_DRIVER(name)                                                    \
  loaded().name = reinterpret_cast<decltype(&::name)>(::dlsym(library, #name)); \
  if (loaded().name == nullptr) return "the driver has no " #name;
#include "tests/simulators/ncclsim/driver/driver_functions.def"
#undef NCCLSIM_DRIVER
  const CUresult result = loaded().cuInit(0);
  return result == CUDA_SUCCESS ? "" : "cuInit fails with " + std::to_string(static_cast<int>(result));
}

}  // namespace

ncclResult_t load_driver() {
  static const std::string* error = new std::string(load());
  NCCLSIM_CHECK(error->empty(), ncclUnhandledCudaError, "%s", error->c_str());
  return ncclSuccess;
}

const Driver& driver() {
  return loaded();
}

ncclResult_t cuda_result(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return ncclSuccess;
  const char* name = nullptr;
  if (driver().cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "an unknown error";
  return fail(ncclUnhandledCudaError, "%s: %s", call, name);
}

Current::Current(CUcontext context)
    : result_(cuda_result(driver().cuCtxPushCurrent_v2(context), "cuCtxPushCurrent")) {}

Current::~Current() {
  CUcontext popped = nullptr;
  if (result_ == ncclSuccess) driver().cuCtxPopCurrent_v2(&popped);
}

}  // namespace ncclsim
