// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/driver/work.h"

#include "tests/simulators/cudasim/driver/api.h"
#include "tests/simulators/cudasim/driver/capture.h"

namespace cudasim {
namespace {

// Returns the distance from the first byte to the last byte.
std::uint64_t span(std::uint64_t bytes, std::uint64_t rows, std::uint64_t row, std::uint64_t slices,
                   std::uint64_t slice) {
  return (slices - 1) * slice + (rows - 1) * row + bytes;
}

bool sane(const CopyWork& work) {
  constexpr std::uint64_t kMax = std::uint64_t{1} << 46;
  return work.bytes < kMax && work.to_row < kMax && work.from_row < kMax && work.to_slice < kMax &&
         work.from_slice < kMax;
}

bool is_empty(const CopyWork& work) {
  return work.bytes == 0 || work.rows == 0 || work.slices == 0;
}

// Resolves both sides of a copy. If the range between the rows does not belong to one allocation, each row is
// checked separately.
CUresult resolve(Context* context, const CopyWork& work, Side* target, Side* source) {
  CUDASIM_CHECK(sane(work), CUDA_ERROR_INVALID_VALUE);
  Shared lock(Process::get().lock);
  CUDASIM_TRY(Memory::get().resolve(
      context, work.to, span(work.bytes, work.rows, work.to_row, work.slices, work.to_slice), true, target));
  return Memory::get().resolve(context, work.from,
                               span(work.bytes, work.rows, work.from_row, work.slices, work.from_slice),
                               false, source);
}

}  // namespace

CUresult check_copy(Context* context, const CopyWork& work) {
  Side target;
  Side source;
  return is_empty(work) ? CUDA_SUCCESS : resolve(context, work, &target, &source);
}

CUresult queue_copy(Context* context, Stream* stream, const CopyWork& work, Waits waits) {
  if (is_empty(work)) return CUDA_SUCCESS;
  Side target;
  Side source;
  CUDASIM_TRY(resolve(context, work, &target, &source));
  CopyCommand command{{0, Command::kCopy, 0},
                      work.to + static_cast<std::uint64_t>(target.shift),
                      work.from + static_cast<std::uint64_t>(source.shift),
                      work.bytes,
                      work.rows,
                      work.slices,
                      work.to_row,
                      work.from_row,
                      work.to_slice,
                      work.from_slice,
                      target.pid,
                      source.pid};
  std::uint64_t sequence = 0;
  const bool one_row = work.rows == 1 && work.slices == 1;
  // Small pageable memory is copied into the command, so the program may change the memory at once, as with
  // the real driver.
  if (source.pageable && one_row && work.bytes <= kInlineBytes && target.pid == 0) {
    command.header.command = Command::kCopyInline;
    command.from_pid = 0;
    CUDASIM_TRY(context->submit(stream, &command, sizeof command, reinterpret_cast<void*>(work.from),
                                work.bytes, &sequence));
  } else {
    CUDASIM_TRY(context->submit(stream, &command, sizeof command, nullptr, 0, &sequence));
    if (source.pageable || target.pageable) waits = Waits::kYes;
  }
  return waits == Waits::kYes ? context->wait(stream->slot, sequence) : CUDA_SUCCESS;
}

CUresult check_set(Context* context, const SetWork& work) {
  CUDASIM_CHECK(work.to % work.width == 0, CUDA_ERROR_INVALID_VALUE);
  if (work.count == 0 || work.rows == 0) return CUDA_SUCCESS;
  CUDASIM_CHECK(work.count <= kDeviceBytes && work.rows <= kDeviceBytes && work.row_step <= kDeviceBytes,
                CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(
      work.rows == 1 || (work.row_step >= work.count * work.width && work.row_step % work.width == 0),
      CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(work.row_step == 0 || work.rows <= kDeviceBytes / work.row_step, CUDA_ERROR_INVALID_VALUE);
  Side target;
  Shared lock(Process::get().lock);
  CUDASIM_TRY(Memory::get().resolve(
      context, work.to, span(work.count * work.width, work.rows, work.row_step, 1, 0), true, &target));
  return target.pid == 0 && target.shift == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult queue_set(Context* context, Stream* stream, const SetWork& work, Waits waits) {
  CUDASIM_TRY(check_set(context, work));
  if (work.count == 0 || work.rows == 0) return CUDA_SUCCESS;
  SetCommand command{{0, Command::kSet, 0}, work.to,    work.count, work.rows,
                     work.row_step,         work.width, work.value};
  std::uint64_t sequence = 0;
  CUDASIM_TRY(context->submit(stream, &command, sizeof command, nullptr, 0, &sequence));
  return waits == Waits::kYes ? context->wait(stream->slot, sequence) : CUDA_SUCCESS;
}

CUresult queue_record(Context* context, Stream* stream, Event* event) {
  RecordCommand command{{0, Command::kRecord, 0}, event->index};
  std::uint64_t sequence = 0;
  CUDASIM_TRY(context->submit(stream, &command, sizeof command, nullptr, 0, &sequence));
  event->set_recorded(stream->slot, sequence);
  return CUDA_SUCCESS;
}

CUresult queue_wait(Context* context, Stream* stream, Event* event) {
  const std::uint64_t recorded = event->recorded.load();
  const int slot = Event::slot_of(recorded);
  const std::uint64_t sequence = Event::sequence_of(recorded);
  if (recorded == 0 || event->context->completed(slot, sequence)) return CUDA_SUCCESS;
  // Another context's streams run in another executor. The event's work has already been submitted. A wait at
  // this point therefore gives the same order, but is less asynchronous.
  if (event->context != context) return event->context->wait(slot, sequence);
  if (slot == stream->slot) return CUDA_SUCCESS;
  WaitCommand command{{0, Command::kWait, 0}, static_cast<std::uint64_t>(slot), sequence};
  return context->submit(stream, &command, sizeof command, nullptr, 0, nullptr);
}

CUresult queue_work(Context* context, Stream* stream, const Work& work) {
  if (const auto* copy = std::get_if<CopyWork>(&work)) return queue_copy(context, stream, *copy, Waits::kNo);
  if (const auto* set = std::get_if<SetWork>(&work)) return queue_set(context, stream, *set, Waits::kNo);
  if (const auto* launch = std::get_if<LaunchWork>(&work)) {
    CUDASIM_CHECK(launch->function->module->alive, CUDA_ERROR_INVALID_HANDLE);
    LaunchCommand command = launch->command;
    command.function = launch->function->address;  // the address changes after a restore of the process
    return context->submit(stream, &command, sizeof command, launch->arguments.data(),
                           launch->arguments.size(), nullptr);
  }
  if (const auto* host = std::get_if<HostWork>(&work))
    return context->host_function(stream, host->function, host->data);
  if (const auto* record = std::get_if<RecordWork>(&work))
    return queue_record(context, stream, record->event);
  if (const auto* wait = std::get_if<WaitWork>(&work)) return queue_wait(context, stream, wait->event);
  return CUDA_SUCCESS;
}

CUresult submit_copy(CUstream handle, const CopyWork& work, Waits waits) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  if (stream->capture != nullptr) {
    CUDASIM_CHECK(waits == Waits::kNo, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUDASIM_TRY(check_copy(context, work));
    return capture_work(stream, work);
  }
  return queue_copy(context, stream, work, waits);
}

CUresult submit_set(CUstream handle, const SetWork& work, Waits waits) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  if (stream->capture != nullptr) {
    CUDASIM_TRY(check_set(context, work));
    return capture_work(stream, work);
  }
  return queue_set(context, stream, work, waits);
}

}  // namespace cudasim
