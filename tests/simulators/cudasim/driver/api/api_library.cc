// SPDX-License-Identifier: Apache-2.0
// Libraries: modules without a context. Each context loads a library at the first use of a library function
// or variable. A kernel's handle may replace a function in every call; its lowest bit distinguishes the two.
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "tests/simulators/cudasim/driver/api.h"

namespace cudasim {
namespace {

struct Library;

struct Kernel {
  Library* library = nullptr;
  std::string name;
};

// Never freed, like all objects with a handle.
struct Library {
  bool alive = true;
  std::vector<unsigned char> image;
  std::map<Context*, CUmodule> modules;
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
};

std::recursive_mutex& libraries_lock() {
  static constinit std::recursive_mutex lock;
  return lock;
}
using LibraryLock = std::lock_guard<std::recursive_mutex>;

constexpr std::uintptr_t kKernelBit = 1;

CUkernel to_handle(Kernel* kernel) {
  return reinterpret_cast<CUkernel>(reinterpret_cast<std::uintptr_t>(kernel) | kKernelBit);
}

Kernel* kernel_of(const void* handle) {
  const auto bits = reinterpret_cast<std::uintptr_t>(handle);
  return (bits & kKernelBit) != 0 ? reinterpret_cast<Kernel*>(bits & ~kKernelBit) : nullptr;
}

CUresult enter_library(CUlibrary handle, Library** library) {
  CUDASIM_TRY(Process::get().ready());
  *library = reinterpret_cast<Library*>(handle);
  CUDASIM_CHECK(*library != nullptr && (*library)->alive, CUDA_ERROR_INVALID_HANDLE);
  return CUDA_SUCCESS;
}

CUresult enter_kernel(const void* handle, Kernel** kernel) {
  CUDASIM_TRY(Process::get().ready());
  *kernel = kernel_of(handle);
  CUDASIM_CHECK(*kernel != nullptr && (*kernel)->library->alive, CUDA_ERROR_INVALID_HANDLE);
  return CUDA_SUCCESS;
}

// Returns the library's module in the current context.
CUresult module_of(Library* library, CUmodule* out) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUmodule& module = library->modules[context];
  if (module == nullptr) CUDASIM_TRY(api::cuModuleLoadData(&module, library->image.data()));
  *out = module;
  return CUDA_SUCCESS;
}

CUresult function_of(Kernel* kernel, CUfunction* out) {
  CUmodule module = nullptr;
  CUDASIM_TRY(module_of(kernel->library, &module));
  return api::cuModuleGetFunction(out, module, kernel->name.c_str());
}

CUresult add_library(std::vector<unsigned char> image, CUlibrary* out) {
  // Loads the library once if a context already exists. Invalid images are then refused at once; further
  // errors appear at the first use.
  auto* library = new Library;
  library->image = std::move(image);
  Context* context = nullptr;
  CUmodule module = nullptr;
  if (enter(&context) == CUDA_SUCCESS) {
    const CUresult result = module_of(library, &module);
    if (result != CUDA_SUCCESS) {
      library->alive = false;
      return result;
    }
  }
  *out = reinterpret_cast<CUlibrary>(library);
  return CUDA_SUCCESS;
}

}  // namespace

Function* function_of_kernel(CUfunction handle) {
  const LibraryLock lock(libraries_lock());
  Kernel* kernel = nullptr;
  CUfunction function = nullptr;
  if (enter_kernel(handle, &kernel) != CUDA_SUCCESS || function_of(kernel, &function) != CUDA_SUCCESS)
    return nullptr;
  return reinterpret_cast<Function*>(function);
}

}  // namespace cudasim

namespace cudasim::api {

CUresult cuLibraryLoadData(CUlibrary* out, const void* code, CUjit_option*, void**, unsigned int,
                           CUlibraryOption*, void**, unsigned int) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(out != nullptr && code != nullptr, CUDA_ERROR_INVALID_VALUE);
  std::uint64_t bytes = 0;
  CUDASIM_TRY(image_bytes(code, &bytes));
  const auto* begin = static_cast<const unsigned char*>(code);
  const LibraryLock lock(libraries_lock());
  return add_library({begin, begin + bytes}, out);
}

CUresult cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option*, void**, unsigned int,
                               CUlibraryOption*, void**, unsigned int) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(out != nullptr && path != nullptr, CUDA_ERROR_INVALID_VALUE);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  CUDASIM_CHECK(fd >= 0, CUDA_ERROR_FILE_NOT_FOUND);
  std::vector<unsigned char> image;
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) image.resize(static_cast<std::size_t>(info.st_size));
  const ssize_t got = ::pread(fd, image.data(), image.size(), 0);
  ::close(fd);
  std::uint64_t bytes = 0;
  CUDASIM_CHECK(
      got >= static_cast<ssize_t>(sizeof(Elf64_Ehdr)) && static_cast<std::size_t>(got) == image.size(),
      CUDA_ERROR_INVALID_IMAGE);
  CUDASIM_TRY(image_bytes(image.data(), &bytes));
  CUDASIM_CHECK(bytes <= image.size(), CUDA_ERROR_INVALID_IMAGE);
  const LibraryLock lock(libraries_lock());
  return add_library(std::move(image), out);
}

CUresult cuLibraryUnload(CUlibrary handle) {
  const LibraryLock lock(libraries_lock());
  Library* library = nullptr;
  CUDASIM_TRY(enter_library(handle, &library));
  library->alive = false;
  library->image = std::vector<unsigned char>();  // `= {}` would retain its memory
  for (const auto& [context, module] : library->modules) {
    if (module == nullptr || !context->alive()) continue;
    context_stack().push_back(context);
    api::cuModuleUnload(module);
    context_stack().pop_back();
  }
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  const LibraryLock lock(libraries_lock());
  Library* library = nullptr;
  CUDASIM_TRY(enter_library(handle, &library));
  CUDASIM_CHECK(out != nullptr && name != nullptr, CUDA_ERROR_INVALID_VALUE);
  auto found = library->kernels.find(name);
  if (found == library->kernels.end()) {
    auto kernel = std::make_unique<Kernel>(Kernel{library, name});
    CUfunction function = nullptr;
    CUDASIM_TRY(function_of(kernel.get(), &function));
    found = library->kernels.emplace(name, std::move(kernel)).first;
  }
  *out = to_handle(found->second.get());
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  const LibraryLock lock(libraries_lock());
  Library* library = nullptr;
  CUDASIM_TRY(enter_library(handle, &library));
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  return module_of(library, out);
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, std::size_t* bytes, CUlibrary handle, const char* name) {
  const LibraryLock lock(libraries_lock());
  Library* library = nullptr;
  CUmodule module = nullptr;
  CUDASIM_TRY(enter_library(handle, &library));
  CUDASIM_TRY(module_of(library, &module));
  return api::cuModuleGetGlobal_v2(address, bytes, module, name);
}

CUresult cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  const LibraryLock lock(libraries_lock());
  Kernel* kernel = nullptr;
  CUDASIM_TRY(enter_kernel(handle, &kernel));
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  return function_of(kernel, out);
}

CUresult cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  const LibraryLock lock(libraries_lock());
  Kernel* kernel = nullptr;
  CUDASIM_TRY(enter_kernel(handle, &kernel));
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  *out = reinterpret_cast<CUlibrary>(kernel->library);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** out, CUkernel handle) {
  const LibraryLock lock(libraries_lock());
  Kernel* kernel = nullptr;
  CUDASIM_TRY(enter_kernel(handle, &kernel));
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  *out = kernel->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle, CUdevice device) {
  CUDASIM_CHECK(Process::get().valid_device(device), CUDA_ERROR_INVALID_DEVICE);
  CUfunction function = nullptr;
  CUDASIM_TRY(api::cuKernelGetFunction(&function, handle));
  return api::cuFuncGetAttribute(value, attribute, function);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice device) {
  CUDASIM_CHECK(Process::get().valid_device(device), CUDA_ERROR_INVALID_DEVICE);
  CUfunction function = nullptr;
  CUDASIM_TRY(api::cuKernelGetFunction(&function, handle));
  return api::cuFuncSetAttribute(function, attribute, value);
}

CUresult cuFuncGetParamInfo(CUfunction handle, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(offset != nullptr, CUDA_ERROR_INVALID_VALUE);
  const Function* function = from_handle(handle);
  CUDASIM_CHECK(function != nullptr && function->module->alive, CUDA_ERROR_INVALID_HANDLE);
  CUDASIM_CHECK(index < function->parameters.size(), CUDA_ERROR_INVALID_VALUE);
  std::size_t at = 0;
  for (std::size_t i = 0; i <= index; i++) {
    const auto [size, align] = function->parameters[i];
    at = (at + align - 1) / align * align;
    if (i == index && bytes != nullptr) *bytes = size;
    if (i < index) at += size;
  }
  *offset = at;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel handle, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  CUfunction function = nullptr;
  CUDASIM_TRY(api::cuKernelGetFunction(&function, handle));
  return api::cuFuncGetParamInfo(function, index, offset, bytes);
}

}  // namespace cudasim::api
