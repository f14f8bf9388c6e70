// SPDX-License-Identifier: Apache-2.0
// Stream operations that write a word or wait for a word.
#include "tests/simulators/cudasim/driver/api.h"
#include "tests/simulators/cudasim/driver/capture.h"

namespace cudasim {
namespace {

constexpr unsigned kWaitKinds = CU_STREAM_WAIT_VALUE_NOR;  // the mask of the two lowest bits, which select
                                                           // the kind of wait

CUresult queue_value(Context* context, Stream* stream, const ValueCommand& command, bool write) {
  CUDASIM_CHECK(command.address % command.width == 0, CUDA_ERROR_INVALID_VALUE);
  Side side;
  {
    Shared lock(Process::get().lock);
    CUDASIM_TRY(Memory::get().resolve(context, command.address, command.width, write, &side));
  }
  // A device cannot read pageable memory, and this driver cannot reach another process's memory here.
  CUDASIM_CHECK(!side.pageable, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(side.pid == 0 && side.shift == 0, CUDA_ERROR_NOT_SUPPORTED);
  ValueCommand sent = command;
  return context->submit(stream, &sent, sizeof sent, nullptr, 0, nullptr);
}

CUresult submit_value(CUstream handle, const ValueCommand& command, bool write) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_CHECK(stream->capture == nullptr, CUDA_ERROR_NOT_SUPPORTED);
  return queue_value(context, stream, command, write);
}

CUresult submit_wait(CUstream handle, CUdeviceptr address, std::uint64_t value, std::uint32_t width,
                     unsigned flags) {
  // The driver does not flush remote writes: CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES is 0.
  CUDASIM_CHECK(flags <= kWaitKinds, CUDA_ERROR_INVALID_VALUE);
  return submit_value(handle, {{0, Command::kWaitValue, 0}, address, value, width, flags}, false);
}

CUresult submit_write(CUstream handle, CUdeviceptr address, std::uint64_t value, std::uint32_t width,
                      unsigned flags) {
  CUDASIM_CHECK(flags <= CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER, CUDA_ERROR_INVALID_VALUE);
  return submit_value(handle, {{0, Command::kWriteValue, 0}, address, value, width, flags}, true);
}

CUresult submit_one(CUstream stream, const CUstreamBatchMemOpParams& item) {
  switch (item.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return submit_wait(stream, item.waitValue.address, item.waitValue.value, 4, item.waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return submit_wait(stream, item.waitValue.address, item.waitValue.value64, 8, item.waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return submit_write(stream, item.writeValue.address, item.writeValue.value, 4, item.writeValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return submit_write(stream, item.writeValue.address, item.writeValue.value64, 8, item.writeValue.flags);
    case CU_STREAM_MEM_OP_BARRIER:
      return CUDA_SUCCESS;  // a stream executes its commands one after the other
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace
}  // namespace cudasim

namespace cudasim::api {

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  return submit_wait(stream, address, value, 4, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  return submit_wait(stream, address, value, 8, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  return submit_write(stream, address, value, 4, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  return submit_write(stream, address, value, 8, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* items,
                               unsigned int flags) {
  constexpr unsigned kMax = 256;
  CUDASIM_CHECK(count > 0 && count <= kMax && items != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
  for (unsigned i = 0; i < count; i++) CUDASIM_TRY(submit_one(stream, items[i]));
  return CUDA_SUCCESS;
}

}  // namespace cudasim::api
