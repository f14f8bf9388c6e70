// SPDX-License-Identifier: Apache-2.0
// Copies and memory sets.
#include <unistd.h>

#include "tools/cudasim/driver/api.h"

namespace cudasim {
namespace {

enum class Waits { kYes, kNo };

// Copies name their sides by address alone; the direction in a call's name says only what must be device memory.
CUresult copy(std::uint64_t to, std::uint64_t from, std::size_t bytes, CUstream handle, Waits waits) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  if (bytes == 0) return CUDA_SUCCESS;
  Side target;
  Side source;
  {
    Shared lock(Process::get().lock);
    CUDASIM_TRY(Memory::get().resolve(context, to, bytes, true, &target));
    CUDASIM_TRY(Memory::get().resolve(context, from, bytes, false, &source));
  }
  CopyCommand command{{0, Command::kCopy, 0}, to, from, bytes, target.pid, source.pid};
  std::uint64_t sequence = 0;
  // Little pageable memory travels with the command, so the program may change it at once, as with the real driver.
  if (source.pageable && bytes <= kInlineBytes && target.pid == 0) {
    command.header.command = Command::kCopyInline;
    command.from_pid = 0;
    CUDASIM_TRY(
        context->submit(stream, &command, sizeof command, reinterpret_cast<void*>(from), bytes, &sequence));
  } else {
    CUDASIM_TRY(context->submit(stream, &command, sizeof command, nullptr, 0, &sequence));
    if (source.pageable || target.pageable) waits = Waits::kYes;
  }
  return waits == Waits::kYes ? context->wait(stream->slot, sequence) : CUDA_SUCCESS;
}

CUresult set(std::uint64_t to, std::uint32_t value, std::uint32_t width, std::size_t count, CUstream handle,
             Waits waits) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_CHECK(to % width == 0, CUDA_ERROR_INVALID_VALUE);
  if (count == 0) return CUDA_SUCCESS;
  CUDASIM_CHECK(count <= kDeviceBytes, CUDA_ERROR_INVALID_VALUE);
  Side target;
  {
    Shared lock(Process::get().lock);
    CUDASIM_TRY(Memory::get().resolve(context, to, count * width, true, &target));
  }
  CUDASIM_CHECK(target.pid == 0, CUDA_ERROR_INVALID_VALUE);
  SetCommand command{{0, Command::kSet, 0}, to, count, width, value};
  std::uint64_t sequence = 0;
  CUDASIM_TRY(context->submit(stream, &command, sizeof command, nullptr, 0, &sequence));
  return waits == Waits::kYes ? context->wait(stream->slot, sequence) : CUDA_SUCCESS;
}

std::uint64_t number(const void* pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

CUresult must_be_device(CUdeviceptr address, std::size_t bytes) {
  // Pinned host memory has a device address, too.
  const bool device =
      Memory::is_device_address(address) || (address >= kHostBase && address < kHostBase + kHostBytes);
  return device || bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace
}  // namespace cudasim

namespace cudasim::api {

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return copy(to, from, bytes, nullptr, Waits::kYes);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy(to, from, bytes, stream, Waits::kNo);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
  CUDASIM_TRY(must_be_device(to, bytes));
  return copy(to, number(from), bytes, nullptr, Waits::kYes);
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes) {
  CUDASIM_TRY(must_be_device(from, bytes));
  return copy(number(to), from, bytes, nullptr, Waits::kYes);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  CUDASIM_TRY(must_be_device(to, bytes));
  CUDASIM_TRY(must_be_device(from, bytes));
  return copy(to, from, bytes, nullptr, Waits::kYes);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  CUDASIM_TRY(must_be_device(to, bytes));
  return copy(to, number(from), bytes, stream, Waits::kNo);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  CUDASIM_TRY(must_be_device(from, bytes));
  return copy(number(to), from, bytes, stream, Waits::kNo);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  CUDASIM_TRY(must_be_device(to, bytes));
  CUDASIM_TRY(must_be_device(from, bytes));
  return copy(to, from, bytes, stream, Waits::kNo);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t bytes) {
  return api::cuMemcpyDtoD_v2(to, from, bytes);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t bytes,
                           CUstream stream) {
  return api::cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, std::size_t count) {
  return set(to, value, 1, count, nullptr, Waits::kYes);
}

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, std::size_t count) {
  return set(to, value, 2, count, nullptr, Waits::kYes);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, std::size_t count) {
  return set(to, value, 4, count, nullptr, Waits::kYes);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  return set(to, value, 1, count, stream, Waits::kNo);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count, CUstream stream) {
  return set(to, value, 2, count, stream, Waits::kNo);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, std::size_t count, CUstream stream) {
  return set(to, value, 4, count, stream, Waits::kNo);
}

}  // namespace cudasim::api
