// SPDX-License-Identifier: Apache-2.0
// Device code from a file, loaded like in programs that compile their kernels themselves: the bytes are
// passed to cudaLibraryLoadData.
// Threads: one. Ownership: RAII. Errors end the program.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace ckpt::examples {

class Library {
 public:
  // Loads `name`.fatbin or `name`.so from ../../lib/kernels relative to the program, whichever the driver
  // accepts.
  explicit Library(const std::string& name);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Returns a kernel for cudaLaunchKernel and similar calls, which accept a library kernel like a function.
  [[nodiscard]] const void* kernel(const char* name) const;
  // Returns the address of a variable of `bytes` bytes.
  [[nodiscard]] void* variable(const char* name, std::size_t bytes) const;

 private:
  cudaLibrary_t library_ = nullptr;
};

}  // namespace ckpt::examples
