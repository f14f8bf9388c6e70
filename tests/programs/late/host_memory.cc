// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/late/host_memory.h"

#include <cstdlib>
#include <cstring>

#include "tools/examples/common/gpu.h"

namespace ckpt::examples {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kIntoPage = 72;  // offset of a registered part in its page

unsigned flags_of(HostKind kind) {
  switch (kind) {
    case HostKind::kAllocated:
    case HostKind::kRegisteredPart:
      return 0;
    case HostKind::kPortable:
      return CU_MEMHOSTALLOC_PORTABLE;
    case HostKind::kMapped:
      return CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    case HostKind::kRegistered:
      return CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  }
  return 0;
}

}  // namespace

HostMemory::HostMemory(HostKind kind, std::uint64_t bytes) : kind_(kind), bytes_(bytes) {
  make();
  std::memset(memory_, 0, bytes_);
  reached_ = cuMemHostGetDevicePointer(&device_pointer_, memory_, 0);
  // A driver may make registered memory accessible only to copies.
  if (reached_ != CUDA_ERROR_NOT_SUPPORTED || !registered()) check(reached_, "cuMemHostGetDevicePointer");
  check(cuMemHostGetFlags(&flags_, memory_), "cuMemHostGetFlags");
}

HostMemory::~HostMemory() {
  if (registered()) {
    cuMemHostUnregister(memory_);
    std::free(block_);
  } else {
    cuMemFreeHost(memory_);
  }
}

void HostMemory::make() {
  if (kind_ == HostKind::kAllocated) return check(cuMemAllocHost(&memory_, bytes_), "cuMemAllocHost");
  if (!registered()) return check(cuMemHostAlloc(&memory_, bytes_, flags_of(kind_)), "cuMemHostAlloc");
  block_ = std::aligned_alloc(kPage, (bytes_ + kIntoPage + kPage - 1) / kPage * kPage);
  if (block_ == nullptr) fail("no memory");
  memory_ = static_cast<char*>(block_) + (kind_ == HostKind::kRegisteredPart ? kIntoPage : 0);
  check(cuMemHostRegister(memory_, bytes_, flags_of(kind_)), "cuMemHostRegister");
}

void HostMemory::register_again() {
  if (!registered()) return;
  check(cuMemHostUnregister(memory_), "cuMemHostUnregister");
  check(cuMemHostRegister(memory_, bytes_, flags_of(kind_)), "cuMemHostRegister");
}

unsigned HostMemory::wrong_answers() const {
  unsigned wrong = 0;
  CUdeviceptr pointer = 0;
  unsigned flags = 0;
  unsigned type = 0;
  const auto expect = [&wrong](bool right) { wrong += right ? 0 : 1; };
  expect(cuMemHostGetDevicePointer(&pointer, memory_, 0) == reached_ && pointer == device_pointer_);
  expect(cuMemHostGetFlags(&flags, memory_) == CUDA_SUCCESS && flags == flags_);
  const auto address = reinterpret_cast<CUdeviceptr>(memory_);
  expect(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_HOST);
  if (registered()) {
    const CUresult again = cuMemHostRegister(memory_, bytes_, flags_of(kind_));
    expect(again == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  }
  return wrong;
}

}  // namespace ckpt::examples
