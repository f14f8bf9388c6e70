// SPDX-License-Identifier: Apache-2.0
// Copies and memory sets.
#include <unistd.h>

#include "tests/simulators/cudasim/driver/api.h"
#include "tests/simulators/cudasim/driver/work.h"

namespace cudasim {
namespace {

// Copies between two addresses. The direction in a call's name only defines which side must be device memory.
CUresult copy(std::uint64_t to, std::uint64_t from, std::size_t bytes, CUstream stream, Waits waits) {
  CopyWork work;
  work.to = to;
  work.from = from;
  work.bytes = bytes;
  return submit_copy(stream, work, waits);
}

CUresult set(std::uint64_t to, std::uint32_t value, std::uint32_t width, std::size_t count, CUstream stream,
             Waits waits) {
  return submit_set(stream, {to, value, width, count, 1, 0}, waits);
}

CUresult set_rows(std::uint64_t to, std::size_t pitch, std::uint32_t value, std::uint32_t width,
                  std::size_t count, std::size_t rows, CUstream stream, Waits waits) {
  return submit_set(stream, {to, value, width, count, rows, pitch}, waits);
}

// Finds the start of one side of a copy of rows, by the kind of memory that the call names.
CUresult begin_of(CUmemorytype type, const void* host, CUdeviceptr device, std::uint64_t offset,
                  std::uint64_t* out) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      *out = reinterpret_cast<std::uint64_t>(host) + offset;
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
      CUDASIM_CHECK(
          Memory::is_device_address(device) || (device >= kHostBase && device < kHostBase + kHostBytes),
          CUDA_ERROR_INVALID_VALUE);
      *out = device + offset;
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_UNIFIED:
      *out = device + offset;
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_ARRAY:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_rows(const CUDA_MEMCPY2D* given, CUstream stream, Waits waits) {
  CUDASIM_CHECK(given != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDA_MEMCPY3D whole{};
  whole.srcXInBytes = given->srcXInBytes;
  whole.srcY = given->srcY;
  whole.srcMemoryType = given->srcMemoryType;
  whole.srcHost = given->srcHost;
  whole.srcDevice = given->srcDevice;
  whole.srcPitch = given->srcPitch;
  whole.dstXInBytes = given->dstXInBytes;
  whole.dstY = given->dstY;
  whole.dstMemoryType = given->dstMemoryType;
  whole.dstHost = given->dstHost;
  whole.dstDevice = given->dstDevice;
  whole.dstPitch = given->dstPitch;
  whole.WidthInBytes = given->WidthInBytes;
  whole.Height = given->Height;
  whole.Depth = 1;
  CopyWork work;
  CUDASIM_TRY(make_copy(whole, &work));
  return submit_copy(stream, work, waits);
}

CUresult copy_slices(const CUDA_MEMCPY3D* given, CUstream stream, Waits waits) {
  CUDASIM_CHECK(given != nullptr, CUDA_ERROR_INVALID_VALUE);
  CopyWork work;
  CUDASIM_TRY(make_copy(*given, &work));
  return submit_copy(stream, work, waits);
}

std::uint64_t number(const void* pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

CUresult must_be_device(CUdeviceptr address, std::size_t bytes) {
  // Pinned host memory also has a device address.
  const bool device =
      Memory::is_device_address(address) || (address >= kHostBase && address < kHostBase + kHostBytes);
  return device || bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

// Creates the work of a copy. A pitch of 0 means contiguous rows; a pitch smaller than the row is an error.
CUresult make_copy(const CUDA_MEMCPY3D& given, CopyWork* out) {
  const std::uint64_t from_row = given.srcPitch != 0 ? given.srcPitch : given.WidthInBytes;
  const std::uint64_t to_row = given.dstPitch != 0 ? given.dstPitch : given.WidthInBytes;
  CUDASIM_CHECK(from_row >= given.srcXInBytes + given.WidthInBytes || given.Height <= 1,
                CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(to_row >= given.dstXInBytes + given.WidthInBytes || given.Height <= 1,
                CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(given.Height <= UINT32_MAX && given.Depth <= UINT32_MAX, CUDA_ERROR_INVALID_VALUE);
  out->bytes = given.WidthInBytes;
  out->rows = static_cast<std::uint32_t>(given.Height);
  out->slices = static_cast<std::uint32_t>(given.Depth);
  out->from_row = from_row;
  out->to_row = to_row;
  out->from_slice = from_row * given.srcHeight;
  out->to_slice = to_row * given.dstHeight;
  CUDASIM_TRY(begin_of(given.srcMemoryType, given.srcHost, given.srcDevice,
                       given.srcXInBytes + given.srcY * from_row + given.srcZ * out->from_slice, &out->from));
  return begin_of(given.dstMemoryType, given.dstHost, given.dstDevice,
                  given.dstXInBytes + given.dstY * to_row + given.dstZ * out->to_slice, &out->to);
}

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

CUresult cuMemsetD2D8_v2(CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width,
                         std::size_t height) {
  return set_rows(to, pitch, value, 1, width, height, nullptr, Waits::kYes);
}

CUresult cuMemsetD2D8Async(CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width,
                           std::size_t height, CUstream stream) {
  return set_rows(to, pitch, value, 1, width, height, stream, Waits::kNo);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width,
                          std::size_t height) {
  return set_rows(to, pitch, value, 2, width, height, nullptr, Waits::kYes);
}

CUresult cuMemsetD2D16Async(CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width,
                            std::size_t height, CUstream stream) {
  return set_rows(to, pitch, value, 2, width, height, stream, Waits::kNo);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr to, std::size_t pitch, unsigned int value, std::size_t width,
                          std::size_t height) {
  return set_rows(to, pitch, value, 4, width, height, nullptr, Waits::kYes);
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, std::size_t pitch, unsigned int value, std::size_t width,
                            std::size_t height, CUstream stream) {
  return set_rows(to, pitch, value, 4, width, height, stream, Waits::kNo);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) {
  return copy_rows(copy, nullptr, Waits::kYes);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) {
  return copy_rows(copy, nullptr, Waits::kYes);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return copy_rows(copy, stream, Waits::kNo);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) {
  return copy_slices(copy, nullptr, Waits::kYes);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return copy_slices(copy, stream, Waits::kNo);
}

}  // namespace cudasim::api
