// SPDX-License-Identifier: Apache-2.0
#include "tools/examples/common/gpu.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace ckpt::examples {

void fail(const std::string& message, int code) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, message.c_str());
  std::exit(code);
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "unknown error";
  const char* text = "";
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  fail(std::string(what) + " failed: " + name + " (" + std::to_string(static_cast<int>(result)) +
       "): " + text);
}

void check(ckpt_status status, const char* what) {
  if (status != CKPT_OK) fail(std::string(what) + " failed: " + ckpt_last_error());
}

Gpu::Gpu() {
  check(cuInit(0), "cuInit");
  int count = 0;
  check(cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (count == 0) fail("no GPU is visible to this program");
  check(cuDeviceGet(&device_, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
}

Gpu::~Gpu() {
  cuCtxSetCurrent(nullptr);
  cuDevicePrimaryCtxRelease(device_);
}

Kernels::Kernels(const char* name) {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) fail("cannot read /proc/self/exe");
  const std::string program(path, static_cast<std::size_t>(length));
  const char* folder = std::getenv("CKPT_KERNEL_DIR");
  const std::string base =
      (folder != nullptr ? std::string(folder)
                         : program.substr(0, program.rfind('/')) + "/../../lib/kernels") +
      "/" + name;
  CUresult result = CUDA_ERROR_FILE_NOT_FOUND;
  for (const char* kind : {".fatbin", ".so"}) {
    if (::access((base + kind).c_str(), R_OK) != 0) continue;
    result = cuModuleLoad(&module_, (base + kind).c_str());
    if (result == CUDA_SUCCESS) return;
  }
  check(result, ("Loading device code " + base).c_str());
}

Kernels::~Kernels() {
  cuModuleUnload(module_);
}

CUfunction Kernels::operator[](const char* kernel) const {
  CUfunction function = nullptr;
  check(cuModuleGetFunction(&function, module_, kernel), kernel);
  return function;
}

LocalMemory::LocalMemory(std::size_t bytes) {
  check(cuMemAlloc(&pointer_, bytes), "cuMemAlloc");
}

LocalMemory::~LocalMemory() {
  cuMemFree(pointer_);
}

Session::Session(bool with_ckpt) {
  if (!with_ckpt) return;
  ckpt_role role{};
  check(ckpt_init(nullptr, &session_, &role), "ckpt_init");
}

Session::~Session() {
  if (session_ != nullptr) ckpt_shutdown(session_);
}

CUdeviceptr Session::alloc(std::size_t bytes) {
  if (session_ == nullptr) {
    CUdeviceptr plain = 0;
    check(cuMemAlloc(&plain, bytes), "cuMemAlloc");
    return plain;
  }
  ckpt_devptr pointer = 0;
  check(ckpt_alloc(session_, bytes, &pointer), "ckpt_alloc");
  return pointer;
}

void Session::tensor(const char* name, CUdeviceptr pointer, ckpt_dtype dtype,
                     std::vector<std::uint64_t> shape, ckpt_kind kind) {
  if (session_ == nullptr) return;
  std::size_t bytes = dtype == CKPT_F32 || dtype == CKPT_U32 ? 4 : 1;
  for (const std::uint64_t extent : shape) bytes *= extent;
  check(ckpt_tensor(session_, name, pointer, bytes, dtype, static_cast<std::uint32_t>(shape.size()),
                    shape.data(), kind),
        name);
}

void Session::host_state(const char* name, void* pointer, std::size_t bytes) {
  if (session_ == nullptr) return;
  check(ckpt_host_state(session_, name, pointer, bytes), name);
}

bool Session::ready() {
  if (session_ == nullptr) return false;
  ckpt_start start{};
  check(ckpt_ready(session_, &start), "ckpt_ready");
  return start == CKPT_RESUMED;
}

void Session::barrier() {
  if (session_ == nullptr) return;
  check(ckpt_barrier(session_), "ckpt_barrier");
}

void Session::shutdown() {
  if (session_ == nullptr) return;
  check(ckpt_shutdown(session_), "ckpt_shutdown");
  session_ = nullptr;
}

void upload(CUdeviceptr to, const void* from, std::size_t bytes) {
  check(cuMemcpyHtoD(to, from, bytes), "cuMemcpyHtoD");
}

void download(void* to, CUdeviceptr from, std::size_t bytes) {
  check(cuMemcpyDtoH(to, from, bytes), "cuMemcpyDtoH");
}

}  // namespace ckpt::examples
