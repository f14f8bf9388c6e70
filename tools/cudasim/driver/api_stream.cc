// SPDX-License-Identifier: Apache-2.0
// Streams, events and host functions.
#include "tools/cudasim/driver/api.h"

namespace cudasim {
namespace {

// Events may be used with another context current.
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
  stream->context->destroy_stream(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  return context->synchronize(stream);
}

CUresult cuStreamQuery(CUstream handle) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
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
  const std::uint64_t recorded = event->recorded.load();
  if (happened(*event, recorded)) return CUDA_SUCCESS;
  // Another context's streams are in another executor. What the event waits for has been submitted already, so
  // waiting for it here is the same order, only less asynchronous.
  if (event->context != context) return wait_for(*event, recorded);
  if (Event::slot_of(recorded) == stream->slot) return CUDA_SUCCESS;
  WaitCommand command{{0, Command::kWait, 0},
                      static_cast<std::uint64_t>(Event::slot_of(recorded)),
                      Event::sequence_of(recorded)};
  return context->submit(stream, &command, sizeof command, nullptr, 0, nullptr);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_CHECK(function != nullptr, CUDA_ERROR_INVALID_VALUE);
  return context->host_function(stream, function, data);
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
  RecordCommand command{{0, Command::kRecord, 0}, event->index};
  std::uint64_t sequence = 0;
  CUDASIM_TRY(context->submit(stream, &command, sizeof command, nullptr, 0, &sequence));
  event->set_recorded(stream->slot, sequence);
  return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned int flags) {
  CUDASIM_CHECK(flags == 0, CUDA_ERROR_NOT_SUPPORTED);
  return api::cuEventRecord(handle, stream);
}

CUresult cuEventQuery(CUevent handle) {
  Event* event = nullptr;
  CUDASIM_TRY(enter_event(handle, &event));
  return happened(*event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
  Event* event = nullptr;
  CUDASIM_TRY(enter_event(handle, &event));
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

}  // namespace cudasim::api
