// SPDX-License-Identifier: Apache-2.0
#include "libckpt/cuda/module.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>
#include <vector>

namespace ckpt {
namespace {

std::vector<std::string> kernel_folders() {
  std::vector<std::string> folders;
  if (const char* folder = std::getenv("CKPT_KERNEL_DIR")) folders.emplace_back(folder);
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (length > 0) {
    const std::string executable(path, static_cast<std::size_t>(length));
    const std::string folder = executable.substr(0, executable.rfind('/'));
    folders.push_back(folder + "/../lib/kernels");
    folders.push_back(folder + "/../../lib/kernels");
  }
  return folders;
}

}  // namespace

Result<Module> Module::load(const DriverApi& api, const std::string& name) {
  std::string tried;
  CUresult last = CUDA_SUCCESS;
  for (const std::string& folder : kernel_folders()) {
    for (const char* kind : {".fatbin", ".so"}) {
      const std::string path = folder + "/" + name + kind;
      if (::access(path.c_str(), R_OK) != 0) continue;
      CUmodule module = nullptr;
      last = api.cuModuleLoad(&module, path.c_str());
      if (last == CUDA_SUCCESS) return Module(&api, module);
      tried += " " + path;
    }
  }
  if (last != CUDA_SUCCESS) return cuda_error(api, last, "Cannot load device code, tried" + tried + ";");
  return Error(ErrorCode::kNotFound,
               "There is no device code named " + name + " (set CKPT_KERNEL_DIR to its folder)");
}

Module::Module(Module&& other) noexcept : api_(other.api_), module_(std::exchange(other.module_, nullptr)) {}

Module::~Module() {
  if (module_ != nullptr) api_->cuModuleUnload(module_);
}

Result<CUfunction> Module::function(const char* name) const {
  CUfunction function = nullptr;
  const CUresult result = api_->cuModuleGetFunction(&function, module_, name);
  if (result != CUDA_SUCCESS) return cuda_error(*api_, result, std::string("Finding kernel ") + name);
  return function;
}

}  // namespace ckpt
