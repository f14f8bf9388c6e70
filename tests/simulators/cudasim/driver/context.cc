// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/driver/context.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/simulators/cudasim/driver/spawn.h"

namespace cudasim {
namespace {

constexpr std::uint64_t kLegacyIds = std::uint64_t{1} << 48;  // IDs of default streams; IDs of other streams
                                                              // count from 1

std::atomic<int> next_context_number{0};

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

CUresult Context::create(int ordinal, int physical, unsigned flags, Context** out) {
  auto* context = new Context;
  context->ordinal_ = ordinal;
  context->flags_ = flags;
  context->number_ = next_context_number.fetch_add(1);
  context->legacy_.context = context;
  context->legacy_.alive = true;
  context->legacy_.id = kLegacyIds + static_cast<std::uint64_t>(context->number_);
  context->slots_[0].opened = true;
  context->slots_[0].used = true;
  const CUresult result = context->start_executor(physical);
  if (result != CUDA_SUCCESS) {
    if (context->shared_ != nullptr) ::munmap(context->shared_, sizeof(ContextShared));
    delete context;
    return result;
  }
  context->alive_ = true;
  *out = context;
  return CUDA_SUCCESS;
}

// Moves the state that is shared with the executor to `memory`, at the same address. The state is either new
// or retained.
bool Context::share_state(int memory) {
  const std::size_t bytes = sizeof(ContextShared);
  if (memory < 0 || ::ftruncate(memory, static_cast<off_t>(bytes)) != 0) return false;
  void* fresh = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (fresh == MAP_FAILED) return false;
  auto* shared = static_cast<ContextShared*>(fresh);
  for (StreamShared& stream : shared->streams) stream.wake_at.store(UINT64_MAX);
  if (shared_ == nullptr) {
    shared_ = shared;
    return true;
  }
  copy_shared(shared);
  ::munmap(fresh, bytes);
  return ::mmap(shared_, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0) != MAP_FAILED;
}

CUresult Context::start_executor(int physical) {
  const int memory = ::memfd_create("cudasim-context", MFD_CLOEXEC);
  int ends[2] = {-1, -1};
  bool started = share_state(memory) && ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0;
  if (started) {
    socket_ = ends[0];
    // The executor reads and writes pageable memory of the program. By default Yama would allow this only to
    // parents of the program.
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    started = spawn_executor(ends[1]);
  }
  if (ends[1] >= 0) ::close(ends[1]);
  CUresult result = CUDA_ERROR_OPERATING_SYSTEM;
  if (started) {
    RequestMessage hello{Request::kHello,
                         {static_cast<std::uint64_t>(physical), static_cast<std::uint64_t>(number_),
                          static_cast<std::uint64_t>(::getpid())}};
    ReplyMessage reply{};
    result = call(hello, memory, &reply, nullptr);
    executor_ = static_cast<pid_t>(reply.a[0]);
  }
  if (memory >= 0) ::close(memory);
  if (result != CUDA_SUCCESS && socket_ >= 0) {
    ::close(socket_);
    socket_ = -1;
  }
  return result;
}

void Context::forget_executor() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void Context::destroy() {
  alive_ = false;
  {
    // Never hold this lock together with objects_: create_stream takes the two locks in the opposite order.
    std::lock_guard<std::mutex> lock(control_);
    shared_->leaving = 1;
    ::close(socket_);  // ends the executor
    socket_ = -1;
  }
  std::lock_guard<std::mutex> objects(objects_);
  for (Stream& stream : streams_) stream.alive = false;
  for (Event& event : events_) event.alive = false;
  for (Module& module : modules_) module.alive = false;
  legacy_.alive = false;
  std::uint32_t none = 0;
  shared_->error.compare_exchange_strong(none, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  shared_->host_request.fetch_add(1);
  futex_wake_all(shared_->host_request);
  make_shared_state_private();
}

CUresult Context::call(const RequestMessage& request, int fd, ReplyMessage* reply, int* reply_fd) {
  ReplyMessage own{};
  if (reply == nullptr) reply = &own;
  int received = -1;
  std::lock_guard<std::mutex> lock(control_);
  if (!send_message(socket_, &request, sizeof request, fd) ||
      !receive_message(socket_, reply, sizeof *reply, &received)) {
    std::uint32_t none = 0;
    shared_->error.compare_exchange_strong(none, CUDA_ERROR_DEVICE_UNAVAILABLE);
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  if (reply_fd != nullptr) {
    *reply_fd = received;
  } else if (received >= 0) {
    ::close(received);
  }
  return static_cast<CUresult>(reply->result);
}

CUresult Context::call(const RequestMessage& request, ReplyMessage* reply) {
  return call(request, -1, reply, nullptr);
}

// Checks the executor. The call that waits for a dead executor detects its death.
void Context::check_executor() {
  pollfd end{socket_, POLLRDHUP, 0};
  if (::poll(&end, 1, 0) <= 0 || (end.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) == 0) return;
  std::uint32_t none = 0;
  shared_->error.compare_exchange_strong(none, CUDA_ERROR_DEVICE_UNAVAILABLE);
}

bool Context::wait_for_space(int slot, std::uint64_t needed) {
  StreamShared& ring = shared_->streams[slot];
  while (slots_[slot].produced - ring.consumed.load(std::memory_order_acquire) + needed > kRingBytes) {
    const std::uint64_t next = ring.completed.load() + 1;
    if (slots_[slot].produced - ring.consumed.load() + needed <= kRingBytes) break;
    if (!wait_completed(ring, next, kCheckIntervalMs)) check_executor();
    if (error() != CUDA_SUCCESS) return false;
  }
  return true;
}

// Publishes a command. The caller holds the slot's mutex.
bool Context::publish(int slot, CommandHeader* command, std::size_t bytes, const void* payload,
                      std::size_t payload_bytes) {
  StreamShared& ring = shared_->streams[slot];
  Slot& own = slots_[slot];
  const std::uint64_t total = round_up(bytes + payload_bytes, 64);
  const std::uint64_t left = kRingBytes - own.produced % kRingBytes;
  const std::uint64_t skipped = left < total ? left : 0;
  if (!wait_for_space(slot, total + skipped)) return false;
  if (skipped > 0) {
    auto* filler = reinterpret_cast<CommandHeader*>(ring.ring + own.produced % kRingBytes);
    *filler = {static_cast<std::uint32_t>(skipped), Command::kSkip, 0};
    own.produced += skipped;
  }
  const std::uint64_t sequence = own.submitted.load(std::memory_order_relaxed) + 1;
  command->bytes = static_cast<std::uint32_t>(total);
  command->sequence = sequence;
  unsigned char* at = ring.ring + own.produced % kRingBytes;
  std::memcpy(at, command, bytes);
  if (payload_bytes > 0) std::memcpy(at + bytes, payload, payload_bytes);
  own.produced += total;
  own.submitted.store(sequence, std::memory_order_release);
  ring.produced.store(own.produced);
  if (ring.sleeps.load() != 0 && ring.sleeps.exchange(0) != 0) futex_wake_all(ring.sleeps);
  return true;
}

bool Context::publish_wait(int slot, int on, std::uint64_t sequence) {
  WaitCommand wait{{0, Command::kWait, 0}, static_cast<std::uint64_t>(on), sequence};
  return publish(slot, &wait.header, sizeof wait, nullptr, 0);
}

// Orders the legacy default stream with the others: it waits for all streams except non-blocking ones, and
// those blocking streams wait for it.
bool Context::join_streams(Stream* stream) {
  if (stream->slot == 0) {
    const int high = slots_high_.load();
    for (int i = 1; i < high; i++) {
      const std::uint64_t submitted = slots_[i].submitted.load();
      if (!slots_[i].joins_legacy.load() || completed(i, submitted)) continue;
      if (!publish_wait(0, i, submitted)) return false;
    }
    return true;
  }
  Slot& slot = slots_[stream->slot];
  if (!slot.joins_legacy.load(std::memory_order_relaxed)) return true;
  const std::uint64_t legacy = slots_[0].submitted.load();
  if (completed(0, legacy) || slot.legacy_waited >= legacy) return true;
  slot.legacy_waited = legacy;
  return publish_wait(stream->slot, 0, legacy);
}

CUresult Context::submit(Stream* stream, void* command, std::size_t bytes, const void* payload,
                         std::size_t payload_bytes, std::uint64_t* sequence) {
  Slot& slot = slots_[stream->slot];
  std::lock_guard<std::mutex> lock(slot.mutex);
  if (error() != CUDA_SUCCESS) return error();
  if (!join_streams(stream) ||
      !publish(stream->slot, static_cast<CommandHeader*>(command), bytes, payload, payload_bytes)) {
    return error();
  }
  if (sequence != nullptr) *sequence = slot.submitted.load(std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult Context::wait(int slot, std::uint64_t sequence) {
  while (error() == CUDA_SUCCESS && !wait_completed(shared_->streams[slot], sequence, kCheckIntervalMs)) {
    check_executor();
  }
  return error();
}

CUresult Context::synchronize(Stream* stream) {
  if (stream->slot == 0) {
    const int high = slots_high_.load();
    for (int i = 1; i < high; i++) {
      if (slots_[i].joins_legacy.load()) wait(i, slots_[i].submitted.load());
    }
  }
  return wait(stream->slot, slots_[stream->slot].submitted.load());
}

CUresult Context::query(Stream* stream) {
  if (error() != CUDA_SUCCESS) return error();
  const int high = stream->slot == 0 ? slots_high_.load() : 0;
  for (int i = 1; i < high; i++) {
    if (slots_[i].joins_legacy.load() && !completed(i, slots_[i].submitted.load()))
      return CUDA_ERROR_NOT_READY;
  }
  if (!completed(stream->slot, slots_[stream->slot].submitted.load())) {
    check_executor();
    return error() != CUDA_SUCCESS ? error() : CUDA_ERROR_NOT_READY;
  }
  return error();
}

CUresult Context::synchronize() {
  const int high = slots_high_.load();
  for (int i = 0; i < high; i++) {
    const CUresult result = wait(i, slots_[i].submitted.load());
    if (result != CUDA_SUCCESS) return result;
  }
  return error();
}

}  // namespace cudasim
