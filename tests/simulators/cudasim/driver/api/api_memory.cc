// SPDX-License-Identifier: Apache-2.0
// Plain device memory, pinned host memory, and the attributes of a pointer.
#include "tests/simulators/cudasim/driver/api.h"
#include "tests/simulators/cudasim/driver/capture.h"
#include "tests/simulators/cudasim/driver/pool.h"

namespace cudasim {
namespace {

constexpr std::size_t kPitch = 512;

bool is_host_pointer_known(std::uint64_t address, std::uint64_t* base, const HostBlock** block) {
  *block = Memory::get().find_host(address, base);
  return *block != nullptr;
}

struct PointerFacts {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
  const HostBlock* host = nullptr;
  const Mapping* mapping = nullptr;
  Context* context = nullptr;
  int ordinal = -1;
};

CUresult facts_of(std::uint64_t address, PointerFacts* facts) {
  if (is_host_pointer_known(address, &facts->base, &facts->host)) {
    facts->bytes = facts->host->bytes;
    return CUDA_SUCCESS;
  }
  CUDASIM_CHECK(Memory::get().range_of(address, &facts->base, &facts->bytes), CUDA_ERROR_INVALID_VALUE);
  facts->mapping = Memory::get().find_mapping(address);
  facts->context = facts->mapping->only;
  facts->ordinal = facts->mapping->physical->properties.location.id;
  return CUDA_SUCCESS;
}

CUresult attribute_of(const PointerFacts& facts, CUpointer_attribute attribute, std::uint64_t address,
                      void* out) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(out) = to_handle(facts.context);
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(out) = facts.host != nullptr ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(out) = address;
      break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      CUDASIM_CHECK(facts.host != nullptr, CUDA_ERROR_INVALID_VALUE);
      *static_cast<void**>(out) = reinterpret_cast<void*>(address);
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(out) = facts.ordinal;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(out) = facts.base;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(out) = facts.bytes;
      break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<int*>(out) = 1;
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      *static_cast<int*>(out) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      *static_cast<unsigned long long*>(out) =
          facts.mapping != nullptr ? facts.mapping->physical->properties.requestedHandleTypes : 0;
      break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *static_cast<CUmemoryPool*>(out) = nullptr;
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(out) = facts.base;
      break;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult allocate_in(Context* context, std::uint64_t bytes, std::uint64_t* address) {
  for (;;) {
    std::shared_ptr<Physical> prepared;
    CUresult result = Memory::prepare(context, bytes, &prepared);
    if (result == CUDA_SUCCESS) {
      Exclusive lock(Process::get().lock);
      result = Memory::get().allocate(context, bytes, prepared, address);
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY || !shrink_pools()) return result;
  }
}

}  // namespace cudasim

namespace cudasim::api {

CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(free_bytes != nullptr && total != nullptr, CUDA_ERROR_INVALID_VALUE);
  sweep_pools();
  Card& card = *Process::get().devices[static_cast<std::size_t>(context->ordinal())].card;
  const Card::Memory memory = card.memory();
  *total = card.state().configured_memory;
  *free_bytes = memory.total > memory.used ? memory.total - memory.used : 0;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(address != nullptr && bytes > 0, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_TRY(allow_unsafe_call());
  std::uint64_t at = 0;
  CUDASIM_TRY(allocate_in(context, bytes, &at));
  *address = at;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* address, std::size_t* pitch, std::size_t width, std::size_t height,
                            unsigned int element) {
  CUDASIM_CHECK(pitch != nullptr && width > 0 && height > 0, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(element == 4 || element == 8 || element == 16, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(width <= kDeviceBytes && height <= kDeviceBytes, CUDA_ERROR_OUT_OF_MEMORY);
  const std::size_t row = (width + kPitch - 1) / kPitch * kPitch;
  CUDASIM_CHECK(height <= kDeviceBytes / row, CUDA_ERROR_OUT_OF_MEMORY);
  CUDASIM_TRY(api::cuMemAlloc_v2(address, row * height));
  *pitch = row;
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  if (address == 0) return CUDA_SUCCESS;
  CUDASIM_TRY(allow_unsafe_call());
  Context* owner = nullptr;
  {
    Shared lock(Process::get().lock);
    owner = Memory::get().context_of(address);
  }
  // Work that uses the memory completes first, as on hardware.
  if (owner != nullptr) CUDASIM_TRY(owner->synchronize());
  forget_in_pools(address);
  forget_graph_memory(address);
  Exclusive lock(Process::get().lock);
  return Memory::get().free_block(address);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  Shared lock(Process::get().lock);
  std::uint64_t start = 0;
  std::uint64_t size = 0;
  CUDASIM_CHECK(Memory::get().range_of(address, &start, &size), CUDA_ERROR_NOT_FOUND);
  if (base != nullptr) *base = start;
  if (bytes != nullptr) *bytes = size;
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** out, std::size_t bytes, unsigned int flags) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(out != nullptr && bytes > 0, CUDA_ERROR_INVALID_VALUE);
  Exclusive lock(Process::get().lock);
  std::uint64_t at = 0;
  CUDASIM_TRY(Memory::get().allocate_host(bytes, flags, &at));
  *out = reinterpret_cast<void*>(at);
  return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void** out, std::size_t bytes) {
  return api::cuMemHostAlloc(out, bytes, 0);
}

CUresult cuMemFreeHost(void* address) {
  Context* context = nullptr;
  CUDASIM_TRY(enter_any(&context));
  context->synchronize();  // a possible error does not concern this memory
  Exclusive lock(Process::get().lock);
  return Memory::get().free_host(reinterpret_cast<std::uint64_t>(address));
}

CUresult cuMemHostRegister_v2(void* address, std::size_t bytes, unsigned int flags) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  Exclusive lock(Process::get().lock);
  return Memory::get().register_host(reinterpret_cast<std::uint64_t>(address), bytes, flags);
}

CUresult cuMemHostUnregister(void* address) {
  Context* context = nullptr;
  CUDASIM_TRY(enter_any(&context));
  context->synchronize();
  Exclusive lock(Process::get().lock);
  return Memory::get().unregister_host(reinterpret_cast<std::uint64_t>(address));
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* address, unsigned int flags) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(out != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
  Shared lock(Process::get().lock);
  std::uint64_t base = 0;
  const HostBlock* block = nullptr;
  CUDASIM_CHECK(is_host_pointer_known(reinterpret_cast<std::uint64_t>(address), &base, &block),
                CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(block->fd >= 0, CUDA_ERROR_NOT_SUPPORTED);  // only copies reach registered memory
  *out = reinterpret_cast<CUdeviceptr>(address);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* address) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
  Shared lock(Process::get().lock);
  std::uint64_t base = 0;
  const HostBlock* block = nullptr;
  CUDASIM_CHECK(is_host_pointer_known(reinterpret_cast<std::uint64_t>(address), &base, &block),
                CUDA_ERROR_INVALID_VALUE);
  *flags = block->flags;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  Shared lock(Process::get().lock);
  PointerFacts facts;
  CUDASIM_TRY(facts_of(address, &facts));
  return attribute_of(facts, attribute, address, out);
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** out,
                                CUdeviceptr address) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(count > 0 && attributes != nullptr && out != nullptr, CUDA_ERROR_INVALID_VALUE);
  Shared lock(Process::get().lock);
  PointerFacts facts;
  if (facts_of(address, &facts) != CUDA_SUCCESS) {
    facts = {};
    facts.ordinal = -2;
    for (unsigned i = 0; i < count; i++) {
      // Pageable memory is not an error for these attributes: the memory type is 0.
      if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) *static_cast<unsigned*>(out[i]) = 0;
      if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *static_cast<int*>(out[i]) = facts.ordinal;
    }
    return CUDA_SUCCESS;
  }
  for (unsigned i = 0; i < count; i++) attribute_of(facts, attributes[i], address, out[i]);
  return CUDA_SUCCESS;
}

}  // namespace cudasim::api
