// SPDX-License-Identifier: Apache-2.0
// The loader of device code. A kernel set NAME is built into several images (NAME.fatbin, NAME.so;
// cmake/GpumigrateKernels.cmake), and the first image that the driver accepts is used. Therefore no program
// needs to know which driver it runs with.
// Threads: load with the context current; functions may be used from any thread. Ownership: Module unloads in
// its destructor and must not outlive the context.
#pragma once

#include <string>

#include "libckpt/cuda/driver.h"

namespace ckpt {

class Module {
 public:
  // Loads a kernel set. Searches $CKPT_KERNEL_DIR, then "../lib/kernels" and "../../lib/kernels" relative to
  // this executable. Returns kNotFound if no image exists, kNotSupported if the driver accepts none.
  static Result<Module> load(const DriverApi& api, const std::string& name);
  Module(Module&& other) noexcept;
  Module& operator=(Module&&) = delete;
  ~Module();

  Result<CUfunction> function(const char* name) const;

 private:
  Module(const DriverApi* api, CUmodule module) : api_(api), module_(module) {}
  const DriverApi* api_;
  CUmodule module_;
};

}  // namespace ckpt
