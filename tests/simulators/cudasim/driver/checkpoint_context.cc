// SPDX-License-Identifier: Apache-2.0
// A context's part in the checkpoint of its process. No work is in flight then, and no call is inside of the
// driver. Only the thread of host functions may read the shared state meanwhile. So the memory of this state
// is replaced atomically, and is never unmapped.
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "tests/simulators/cudasim/driver/context.h"

namespace cudasim {
namespace {

constexpr int kEndMs = 10000;

void copy_words(const StreamShared& from, StreamShared* to) {
  to->produced.store(from.produced.load());
  to->consumed.store(from.consumed.load());
  to->completed.store(from.completed.load());
  to->host_pending.store(from.host_pending.load());
  to->host_done.store(from.host_done.load());
}

bool read_all(int fd, void* to, std::uint64_t bytes) {
  auto* out = static_cast<unsigned char*>(to);
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t part = ::pread(fd, out + done, bytes - done, static_cast<off_t>(done));
    if (part <= 0) return false;
    done += static_cast<std::uint64_t>(part);
  }
  return true;
}

}  // namespace

// Waits until all submitted work has completed. Returns false at the deadline. A context with an error has
// nothing to wait for.
bool Context::drain(Deadline deadline) {
  const int high = slots_high_.load();
  for (int i = 0; i < high; i++) {
    const std::uint64_t last = slots_[i].submitted.load();
    while (error() == CUDA_SUCCESS && !completed(i, last)) {
      const int left = milliseconds_left(deadline, kCheckIntervalMs);
      if (left == 0) return false;
      if (!wait_completed(shared_->streams[i], last, left)) check_executor();
    }
  }
  return true;
}

void Context::copy_shared(ContextShared* to) {
  to->error.store(shared_->error.load());
  to->host_request.store(shared_->host_request.load());
  for (std::size_t i = 0; i < events_.size(); i++) to->event_ns[i].store(shared_->event_ns[i].load());
  for (int i = 0; i < kMaxStreams; i++) {
    if (slots_[i].opened) copy_words(shared_->streams[i], &to->streams[i]);
  }
}

bool Context::make_shared_state_private() {
  const std::size_t bytes = sizeof(ContextShared);
  void* own = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) return false;
  copy_shared(static_cast<ContextShared*>(own));
  if (::mremap(own, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, shared_) != MAP_FAILED) return true;
  ::munmap(own, bytes);
  return false;
}

CUresult Context::save() {
  for (Module& module : modules_) {
    if (!module.alive) continue;
    ReplyMessage reply{};
    int fd = -1;
    CUresult result = call({Request::kModuleSave, {module.id}}, -1, &reply, &fd);
    module.saved.resize(reply.a[0]);
    if (result == CUDA_SUCCESS && reply.a[0] > 0 && !read_all(fd, module.saved.data(), reply.a[0]))
      result = CUDA_ERROR_OUT_OF_MEMORY;
    if (fd >= 0) ::close(fd);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

void Context::mark_restored() {
  shared_->restored_in = static_cast<std::uint32_t>(::getpid());
}

void Context::mark_leaving() {
  // A forked child shares this state and reports nothing.
  if (shared_->restored_in == static_cast<std::uint32_t>(::getpid())) shared_->leaving = 1;
}

void Context::close_executor() {
  if (socket_ < 0) return;
  shared_->leaving = 1;
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, executor_, 0));
  {
    std::lock_guard<std::mutex> lock(control_);
    ::close(socket_);
    socket_ = -1;
  }
  // The memory of the executor is free only after its process has exited.
  pollfd end{process, POLLIN, 0};
  while (process >= 0 && ::poll(&end, 1, kEndMs) < 0 && errno == EINTR) {
  }
  if (process >= 0) ::close(process);
  make_shared_state_private();
}

CUresult Context::open_executor(int physical) {
  CUresult result = start_executor(physical);
  for (int i = 1; i < kMaxStreams && result == CUDA_SUCCESS; i++) {
    if (slots_[i].opened) result = call({Request::kStreamOpen, {static_cast<std::uint64_t>(i)}});
  }
  for (Module& module : modules_) {
    if (module.alive && result == CUDA_SUCCESS) result = reload(&module);
  }
  return result;
}

CUresult Context::reload(Module* module) {
  ReplyMessage reply{};
  CUresult result = load_image(module->image, module->variables, &reply);
  if (result != CUDA_SUCCESS) return result;
  if (reply.a[1] != module->variables) return CUDA_ERROR_OPERATING_SYSTEM;
  module->id = reply.a[0];
  if (!module->saved.empty()) {
    const int fd = make_file(module->saved);
    if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    result = call({Request::kModuleRestore, {module->id}}, fd, nullptr, nullptr);
    ::close(fd);
    module->saved = std::vector<unsigned char>();  // `= {}` would retain its memory
  }
  for (auto& [name, function] : module->functions) {
    RequestMessage request{Request::kFunction, {module->id}};
    std::strcpy(request.name, name.c_str());  // the name came in a field of this size
    if (result == CUDA_SUCCESS) result = call(request, &reply);
    function->address = reply.a[0];
  }
  return result;
}

}  // namespace cudasim
