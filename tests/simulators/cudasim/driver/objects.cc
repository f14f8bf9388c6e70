// SPDX-License-Identifier: Apache-2.0
// Streams, events, host functions and modules of a context.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <unordered_map>

#include "tests/simulators/cudasim/driver/capture.h"
#include "tests/simulators/cudasim/driver/context.h"

namespace cudasim {
namespace {

constexpr int kCheckInterval = 100;

std::atomic<std::uint64_t> next_stream_id{1};

// A thread's default streams, which are destroyed when the thread ends.
struct ThreadStreams {
  std::unordered_map<Context*, Stream*> streams;
  ~ThreadStreams() {
    for (const auto& [context, stream] : streams) {
      if (stream == nullptr || !stream->alive) continue;
      leave_capture(stream);
      context->destroy_stream(stream);
    }
  }
};

}  // namespace

CUresult Context::create_stream(unsigned flags, int priority, Stream** out) {
  std::lock_guard<std::mutex> lock(objects_);
  // A slot's thread continues to exist and is reused. A slot with pending work would delay the new stream, so
  // such slots are chosen last.
  int chosen = -1;
  for (int i = 1; i < kMaxStreams; i++) {
    if (slots_[i].used) continue;
    const bool idle = completed(i, slots_[i].submitted.load());
    if (chosen < 0 || idle) chosen = i;
    if (idle) break;
  }
  if (chosen < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Slot& slot = slots_[chosen];
  if (!slot.opened) {
    const CUresult result = call({Request::kStreamOpen, {static_cast<std::uint64_t>(chosen)}});
    if (result != CUDA_SUCCESS) return result;
    slot.opened = true;
  }
  slot.used = true;
  slot.joins_legacy = (flags & CU_STREAM_NON_BLOCKING) == 0;
  slots_high_ = std::max(slots_high_.load(), chosen + 1);
  const auto dead = std::find_if(streams_.begin(), streams_.end(), [](const Stream& s) { return !s.alive; });
  Stream* stream = dead != streams_.end() ? &*dead : &streams_.emplace_back();
  stream->context = this;
  stream->slot = chosen;
  stream->id = next_stream_id.fetch_add(1);
  stream->flags = flags;
  stream->priority = priority;
  stream->alive = true;
  *out = stream;
  return CUDA_SUCCESS;
}

// Destroys a stream. As in the real driver, queued work continues.
void Context::destroy_stream(Stream* stream) {
  std::lock_guard<std::mutex> lock(objects_);
  stream->alive = false;
  slots_[stream->slot].used = false;
}

Stream* Context::thread_stream() {
  static thread_local ThreadStreams own;
  Stream*& stream = own.streams[this];
  if (stream == nullptr && create_stream(CU_STREAM_DEFAULT, 0, &stream) != CUDA_SUCCESS) stream = nullptr;
  return stream;
}

CUresult Context::create_event(unsigned flags, Event** out) {
  std::lock_guard<std::mutex> lock(objects_);
  Event* event = nullptr;
  if (!free_events_.empty()) {
    event = free_events_.back();
    free_events_.pop_back();
  } else {
    if (events_.size() >= kMaxEvents) return CUDA_ERROR_OUT_OF_MEMORY;
    event = &events_.emplace_back();
    event->index = events_.size() - 1;
  }
  event->context = this;
  event->flags = flags;
  event->recorded = 0;
  event->alive = true;
  *out = event;
  return CUDA_SUCCESS;
}

void Context::destroy_event(Event* event) {
  std::lock_guard<std::mutex> lock(objects_);
  event->alive = false;
  free_events_.push_back(event);
}

CUresult Context::host_function(Stream* stream, CUhostFn function, void* data) {
  {
    std::lock_guard<std::mutex> lock(host_mutex_);
    if (!host_thread_) std::thread([this] { run_host_functions(); }).detach();
    host_thread_ = true;
  }
  Slot& slot = slots_[stream->slot];
  std::lock_guard<std::mutex> lock(slot.mutex);
  if (error() != CUDA_SUCCESS) return error();
  if (!join_streams(stream)) return error();
  HostCommand command{{0, Command::kHost, 0}, ++slot.host_ticket};
  {
    std::lock_guard<std::mutex> calls(host_mutex_);
    host_calls_.push_back({stream->slot, command.ticket, function, data});
  }
  return publish(stream->slot, &command.header, sizeof command, nullptr, 0) ? CUDA_SUCCESS : error();
}

// Runs host functions when their streams reach them. This is a thread in the program. Each stream waits until
// its function has returned.
void Context::run_host_functions() {
  for (;;) {
    const std::uint32_t request = shared_->host_request.load();
    HostCall call{};
    bool found = false;
    {
      std::lock_guard<std::mutex> lock(host_mutex_);
      for (std::size_t i = 0; i < host_calls_.size() && !found; i++) {
        if (shared_->streams[host_calls_[i].slot].host_pending.load() != host_calls_[i].ticket) continue;
        call = host_calls_[i];
        host_calls_.erase(host_calls_.begin() + static_cast<std::ptrdiff_t>(i));
        found = true;
      }
    }
    if (found) {
      call.function(call.data);
      StreamShared& stream = shared_->streams[call.slot];
      stream.host_done.store(call.ticket);
      stream.host_signal.fetch_add(1);
      futex_wake_all(stream.host_signal);
      continue;
    }
    if (!alive_) return;
    futex_wait(shared_->host_request, request, kCheckInterval * 10);
  }
}

CUresult Context::get_limit(CUlimit limit, std::size_t* value) {
  if (limit > CU_LIMIT_MALLOC_HEAP_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *value = limits_[limit];
  return CUDA_SUCCESS;
}

CUresult Context::set_limit(CUlimit limit, std::size_t value) {
  if (limit > CU_LIMIT_MALLOC_HEAP_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  limits_[limit] = value;
  return CUDA_SUCCESS;
}

int make_file(const std::vector<unsigned char>& content) {
  const int fd = ::memfd_create("cudasim-module", MFD_CLOEXEC);
  for (std::size_t done = 0; fd >= 0 && done < content.size();) {
    const ssize_t part = ::pwrite(fd, content.data() + done, content.size() - done, static_cast<off_t>(done));
    if (part <= 0) {
      ::close(fd);
      return -1;
    }
    done += static_cast<std::size_t>(part);
  }
  return fd;
}

CUresult Context::load_image(const std::vector<unsigned char>& image, std::uint64_t variables,
                             ReplyMessage* reply) {
  const int fd = make_file(image);
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = call({Request::kModuleLoad, {variables}}, fd, reply, nullptr);
  ::close(fd);
  return result;
}

CUresult Context::load_module(const void* image, std::uint64_t bytes, Module** out) {
  const auto* begin = static_cast<const unsigned char*>(image);
  std::vector<unsigned char> copy(begin, begin + bytes);
  ReplyMessage reply{};
  const CUresult result = load_image(copy, 0, &reply);
  if (result != CUDA_SUCCESS) return result;
  std::lock_guard<std::mutex> lock(objects_);
  Module* module = &modules_.emplace_back();
  module->context = this;
  module->id = reply.a[0];
  module->variables = reply.a[1];
  module->image = std::move(copy);
  module->alive = true;
  *out = module;
  return CUDA_SUCCESS;
}

}  // namespace cudasim
