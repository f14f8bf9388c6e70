// SPDX-License-Identifier: Apache-2.0
// Device code from a file, as programs load it that compile their kernels themselves: the bytes go to
// cudaLibraryLoadData.
// Threads: one. Ownership: RAII. Errors end the program.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace ckpt::examples {

class Library {
 public:
  // `name`.fatbin or `name`.so of ../../lib/kernels beside the program, whichever the driver takes.
  explicit Library(const std::string& name);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // For cudaLaunchKernel and its like, which take a kernel of a library as they take a function.
  [[nodiscard]] const void* kernel(const char* name) const;
  // The address of a variable of `bytes` bytes.
  [[nodiscard]] void* variable(const char* name, std::size_t bytes) const;

 private:
  cudaLibrary_t library_ = nullptr;
};

}  // namespace ckpt::examples
