// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/runtime/library.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/programs/runtime/check.h"

namespace ckpt::examples {

Library::Library(const std::string& name) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path base = program.parent_path() / "../../lib/kernels" / name;
  cudaError_t result = cudaErrorFileNotFound;
  for (const char* kind : {".fatbin", ".so"}) {
    std::ifstream file(base.string() + kind, std::ios::binary);
    if (!file) continue;
    const std::vector<char> code{std::istreambuf_iterator<char>(file), {}};
    result = cudaLibraryLoadData(&library_, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (result == cudaSuccess) return;
  }
  check(result, ("Loading device code " + base.string()).c_str());
}

Library::~Library() {
  cudaLibraryUnload(library_);
}

const void* Library::kernel(const char* name) const {
  cudaKernel_t kernel = nullptr;
  check(cudaLibraryGetKernel(&kernel, library_, name), name);
  return static_cast<const void*>(kernel);
}

void* Library::variable(const char* name, std::size_t bytes) const {
  void* at = nullptr;
  std::size_t size = 0;
  check(cudaLibraryGetGlobal(&at, &size, library_, name), name);
  if (size != bytes) fail(std::string("the variable ") + name + " has another size");
  return at;
}

}  // namespace ckpt::examples
