// SPDX-License-Identifier: Apache-2.0
// Streams, events and host functions of the API.
#include <memory>

#include "tests/simulators/cudasim/driver/api.h"
#include "tests/simulators/cudasim/driver/capture.h"
#include "tests/simulators/cudasim/driver/pool.h"

namespace cudasim {
namespace {

// Finds an event, which may belong to another context than the current one.
CUresult enter_event(CUevent handle, Event** event) {
  CUDASIM_TRY(Process::get().ready());
  *event = from_handle(handle);
  CUDASIM_CHECK(*event != nullptr && (*event)->alive, CUDA_ERROR_INVALID_HANDLE);
  return (*event)->context->error();
}

bool happened(const Event& event, std::uint64_t recorded) {
  return recorded == 0 || event.context->completed(Event::slot_of(recorded), Event::sequence_of(recorded));
}

bool happened(const Event& event) {
  return happened(event, event.recorded.load());
}

CUresult wait_for(const Event& event, std::uint64_t recorded) {
  return event.context->wait(Event::slot_of(recorded), Event::sequence_of(recorded));
}

}  // namespace
}  // namespace cudasim

namespace cudasim::api {

CUresult cuStreamCreateWithPriority(CUstream* out, unsigned int flags, int priority) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(out != nullptr && flags <= CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE);
  Stream* stream = nullptr;
  CUDASIM_TRY(context->create_stream(flags, priority, &stream));
  *out = to_handle(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* out, unsigned int flags) {
  return api::cuStreamCreateWithPriority(out, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(handle != nullptr && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD,
                CUDA_ERROR_INVALID_HANDLE);
  auto* stream = reinterpret_cast<Stream*>(handle);
  CUDASIM_CHECK(stream->alive, CUDA_ERROR_INVALID_HANDLE);
  leave_capture(stream);
  stream->context->destroy_stream(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_TRY(allow_wait(stream));
  CUDASIM_TRY(context->synchronize(stream));
  sweep_pools();
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream handle) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_TRY(allow_wait(stream));
  return context->query(stream);
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_CHECK(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_CHECK(priority != nullptr, CUDA_ERROR_INVALID_VALUE);
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* out) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  *out = to_handle(context);
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  Event* event = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_TRY(enter_event(event_handle, &event));
  CUDASIM_CHECK(flags <= CU_EVENT_WAIT_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
  const bool external = flags == CU_EVENT_WAIT_EXTERNAL;
  const CUresult captured = capture_wait(stream, event, external);
  if (captured != CUDA_ERROR_NOT_FOUND) return captured;
  if (external && stream->capture != nullptr) return capture_work(stream, WaitWork{event});
  return queue_wait(context, stream, event);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_CHECK(function != nullptr, CUDA_ERROR_INVALID_VALUE);
  if (stream->capture != nullptr) return capture_work(stream, HostWork{function, data});
  return context->host_function(stream, function, data);
}

namespace {

struct Callback {
  CUstream stream;
  Context* context;
  CUstreamCallback function;
  void* data;
};

}  // namespace

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback function, void* data, unsigned int flags) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_CHECK(function != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
  if (stream->capture != nullptr) {
    invalidate(stream);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  const CUhostFn call = [](void* given) {
    const std::unique_ptr<Callback> callback(static_cast<Callback*>(given));
    callback->function(callback->stream, callback->context->error(), callback->data);
  };
  return context->host_function(stream, call, new Callback{handle, context, function, data});
}

CUresult cuEventCreate(CUevent* out, unsigned int flags) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK((flags & CU_EVENT_INTERPROCESS) == 0, CUDA_ERROR_NOT_SUPPORTED);
  Event* event = nullptr;
  CUDASIM_TRY(context->create_event(flags, &event));
  *out = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
  CUDASIM_TRY(Process::get().ready());
  Event* event = from_handle(handle);
  CUDASIM_CHECK(event != nullptr && event->alive, CUDA_ERROR_INVALID_HANDLE);
  event->context->destroy_event(event);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  Event* event = nullptr;
  CUDASIM_TRY(enter_stream(stream_handle, &context, &stream));
  CUDASIM_TRY(enter_event(handle, &event));
  CUDASIM_CHECK(event->context == context, CUDA_ERROR_INVALID_HANDLE);
  if (stream->capture != nullptr) return capture_record(stream, event);
  event->capture_id = 0;
  return queue_record(context, stream, event);
}

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned int flags) {
  if (flags == 0) return api::cuEventRecord(handle, stream_handle);
  CUDASIM_CHECK(flags == CU_EVENT_RECORD_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
  Context* context = nullptr;
  Stream* stream = nullptr;
  Event* event = nullptr;
  CUDASIM_TRY(enter_stream(stream_handle, &context, &stream));
  CUDASIM_TRY(enter_event(handle, &event));
  CUDASIM_CHECK(event->context == context, CUDA_ERROR_INVALID_HANDLE);
  CUDASIM_CHECK(stream->capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
  return capture_work(stream, RecordWork{event});
}

CUresult cuEventQuery(CUevent handle) {
  Event* event = nullptr;
  CUDASIM_TRY(enter_event(handle, &event));
  CUDASIM_CHECK(event->capture_id == 0, CUDA_ERROR_CAPTURED_EVENT);
  return happened(*event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
  Event* event = nullptr;
  CUDASIM_TRY(enter_event(handle, &event));
  CUDASIM_CHECK(event->capture_id == 0, CUDA_ERROR_CAPTURED_EVENT);
  const std::uint64_t recorded = event->recorded.load();
  return recorded == 0 ? CUDA_SUCCESS : wait_for(*event, recorded);
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent begin_handle, CUevent end_handle) {
  Event* begin = nullptr;
  Event* end = nullptr;
  CUDASIM_TRY(enter_event(begin_handle, &begin));
  CUDASIM_TRY(enter_event(end_handle, &end));
  CUDASIM_CHECK(milliseconds != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(begin->recorded != 0 && end->recorded != 0, CUDA_ERROR_INVALID_HANDLE);
  CUDASIM_CHECK(((begin->flags | end->flags) & CU_EVENT_DISABLE_TIMING) == 0, CUDA_ERROR_INVALID_HANDLE);
  CUDASIM_CHECK(happened(*begin) && happened(*end), CUDA_ERROR_NOT_READY);
  const std::uint64_t from = begin->context->event_time(*begin);
  const std::uint64_t to = end->context->event_time(*end);
  *milliseconds = static_cast<float>(static_cast<double>(static_cast<std::int64_t>(to - from)) * 1e-6);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return api::cuEventElapsedTime_v2(milliseconds, begin, end);
}

CUresult cuStreamDestroy(CUstream stream) {
  return api::cuStreamDestroy_v2(stream);
}

CUresult cuEventDestroy(CUevent event) {
  return api::cuEventDestroy_v2(event);
}

// Returns the stream's ID. While a stream is captured, the queries in this function and the next one are
// forbidden in any mode.
CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_CHECK(id != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_TRY(allow_wait(stream));
  *id = stream->id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_CHECK(device != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_TRY(allow_wait(stream));
  *device = context->ordinal();
  return CUDA_SUCCESS;
}

}  // namespace cudasim::api
