// SPDX-License-Identifier: Apache-2.0
// Session of a program that neither uses nor links libckpt: plain device memory, and calls that do nothing.
#include "tools/examples/common/gpu.h"

namespace ckpt::examples {

Session::Session(bool) {}

Session::~Session() = default;

CUdeviceptr Session::alloc(std::size_t bytes) {
  CUdeviceptr plain = 0;
  check(cuMemAlloc(&plain, bytes), "cuMemAlloc");
  return plain;
}

void Session::tensor(const char*, CUdeviceptr, ckpt_dtype, std::vector<std::uint64_t>, ckpt_kind) {}
void Session::host_state(const char*, void*, std::size_t) {}
bool Session::ready() {
  return false;
}
void Session::barrier() {}
void Session::shutdown() {}

}  // namespace ckpt::examples
