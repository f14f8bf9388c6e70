// SPDX-License-Identifier: Apache-2.0
#include "tools/examples/common/gpu.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace ckpt::examples {
namespace {

thread_local CUstream stream_of_thread = nullptr;

}  // namespace

CUstream current_stream() noexcept {
  return stream_of_thread;
}
OnStream::OnStream(CUstream stream) noexcept : before_(std::exchange(stream_of_thread, stream)) {}
OnStream::~OnStream() {
  stream_of_thread = before_;
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

void upload(CUdeviceptr to, const void* from, std::size_t bytes) {
  check(cuMemcpyHtoD(to, from, bytes), "cuMemcpyHtoD");
}

void download(void* to, CUdeviceptr from, std::size_t bytes) {
  check(cuMemcpyDtoH(to, from, bytes), "cuMemcpyDtoH");
}

void add_device(Digest& digest, CUdeviceptr data, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  std::vector<unsigned char> buffer(std::min(kPiece, bytes));
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    const std::size_t piece = std::min(kPiece, bytes - at);
    download(buffer.data(), data + at, piece);
    digest.add(buffer.data(), piece);
  }
}

}  // namespace ckpt::examples
