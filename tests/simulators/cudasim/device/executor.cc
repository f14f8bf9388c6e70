// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/device/executor.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "tests/simulators/cudasim/card/settings.h"
#include "tests/simulators/cudasim/device/fault.h"
#include "tests/simulators/cudasim/device/stream.h"

namespace cudasim {
namespace {

bool reserve_addresses() {
  void* at = reinterpret_cast<void*>(kDeviceBase);
  const std::uint64_t bytes = kDeviceBytes + kHostBytes + kGlobalBytes;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  return ::mmap(at, bytes, PROT_NONE, flags, -1, 0) == at;
}

}  // namespace

void Executor::serve(int socket) {
  RequestMessage request;
  int fd = -1;
  if (!receive_message(socket, &request, sizeof request, &fd) || request.request != Request::kHello) return;
  const auto program = static_cast<pid_t>(request.a[2]);
  const int program_fd = static_cast<int>(::syscall(SYS_pidfd_open, program, 0));
  Executor executor(socket, program_fd);
  ReplyMessage reply{};
  const bool started = executor.start(request, fd);
  if (fd >= 0) ::close(fd);
  reply.result = started ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
  reply.a[0] = static_cast<std::uint64_t>(::getpid());
  if (!send_message(socket, &reply, sizeof reply, -1) || !started) return;
  executor.serve_requests();
  executor.wedge_if_killed();
  executor.card_->remove_context(executor.context_slot_);
}

bool Executor::start(const RequestMessage& request, int fd) {
  const auto device = static_cast<int>(request.a[0]);
  program_ = static_cast<pid_t>(request.a[2]);
  const Settings& machine = settings();
  if (fd < 0 || device < 0 || device >= machine.devices || !reserve_addresses()) return false;
  for (int i = 0; i < machine.devices; i++) {
    cards_.push_back(Card::open(machine.dir, i, machine.memory));
    if (cards_.back() == nullptr) return false;
  }
  card_ = cards_[static_cast<std::size_t>(device)].get();
  void* shared = ::mmap(nullptr, sizeof(ContextShared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (shared == MAP_FAILED) return false;
  shared_ = static_cast<ContextShared*>(shared);
  context_slot_ = card_->add_context(program_);
  if (context_slot_ < 0) return false;
  memory_ = std::make_unique<DeviceMemory>(&cards_, device, program_);
  modules_ =
      std::make_unique<Modules>(kGlobalBase + (request.a[1] % (kGlobalBytes / kGlobalSlice)) * kGlobalSlice);
  // Peers of the same program copy from and to this process, also where Yama restricts such access.
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  install_fault_handlers();
  std::thread([this] { watch_card(); }).detach();
  return open_stream(0) == CUDA_SUCCESS;
}

void Executor::serve_requests() {
  for (;;) {
    pollfd ends[2] = {{socket_, POLLIN, 0}, {program_fd_, POLLIN, 0}};
    if (::poll(ends, program_fd_ >= 0 ? 2 : 1, -1) < 0) continue;
    if (program_fd_ >= 0 && ends[1].revents != 0) return;
    RequestMessage request;
    int fd = -1;
    if (!receive_message(socket_, &request, sizeof request, &fd)) return;
    request.name[sizeof request.name - 1] = '\0';
    ReplyMessage reply{};
    int reply_fd = -1;
    reply.result = handle(request, fd, &reply, &reply_fd);
    const bool sent = send_message(socket_, &reply, sizeof reply, reply_fd);
    if (fd >= 0) ::close(fd);
    if (reply_fd >= 0) ::close(reply_fd);
    if (!sent) return;
  }
}

CUresult Executor::handle(const RequestMessage& request, int fd, ReplyMessage* reply, int* reply_fd) {
  switch (request.request) {
    case Request::kHello:
      return CUDA_ERROR_INVALID_VALUE;
    case Request::kStreamOpen:
      return open_stream(request.a[0]);
    case Request::kModuleLoad:
    case Request::kModuleSave:
    case Request::kModuleRestore:
    case Request::kModuleUnload:
    case Request::kFunction:
    case Request::kGlobal:
      return handle_module(request, fd, reply, reply_fd);
    default:
      return handle_memory(request, fd, reply, reply_fd);
  }
}

CUresult Executor::handle_memory(const RequestMessage& request, int fd, ReplyMessage* reply, int* reply_fd) {
  const std::uint64_t* a = request.a;
  switch (request.request) {
    case Request::kMemoryCreate:
      return memory_->create(a[0], a[1] != 0, &reply->a[0]);
    case Request::kMemoryImport: {
      int device = 0;
      const CUresult result = memory_->import(fd, &reply->a[0], &reply->a[1], &device);
      reply->a[2] = static_cast<std::uint64_t>(device);
      return result;
    }
    case Request::kMemoryAttach: {
      int device = 0;
      const CUresult result = memory_->attach(fd, &reply->a[0], &reply->a[1], &device);
      reply->a[2] = static_cast<std::uint64_t>(device);
      return result;
    }
    case Request::kMemoryExport:
      return memory_->share(a[0], reply_fd);
    case Request::kMemoryNumber:
      return memory_->number(a[0], reply->a);
    case Request::kMemoryDrop:
      return memory_->drop(a[0]);
    case Request::kMap:
      return memory_->map(a[0], a[1], a[2] != 0);
    case Request::kUnmap:
      return DeviceMemory::unmap(a[0], a[1]);
    case Request::kHostMap:
      return DeviceMemory::map_host(fd, a[0], a[1]);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Executor::handle_module(const RequestMessage& request, int fd, ReplyMessage* reply, int* reply_fd) {
  switch (request.request) {
    case Request::kModuleLoad:
      return modules_->load(fd, request.a[0], &reply->a[0], &reply->a[1]);
    case Request::kModuleSave:
      return modules_->save(request.a[0], reply_fd, &reply->a[0]);
    case Request::kModuleRestore:
      return modules_->restore(request.a[0], fd);
    case Request::kModuleUnload:
      return modules_->unload(request.a[0]);
    case Request::kGlobal:
      return modules_->global(request.a[0], request.name, &reply->a[0], &reply->a[1]);
    default:
      break;
  }
  const cudasim_parameters* parameters = nullptr;
  const CUresult result = modules_->function(request.a[0], request.name, &reply->a[0], &parameters);
  if (result != CUDA_SUCCESS) return result;
  reply->count = parameters->count;
  static_assert(sizeof reply->parameters == sizeof parameters->items);
  std::memcpy(reply->parameters, parameters->items, sizeof reply->parameters);
  return CUDA_SUCCESS;
}

CUresult Executor::open_stream(std::uint64_t slot) {
  if (slot >= kMaxStreams) return CUDA_ERROR_INVALID_VALUE;
  std::thread([this, slot] { Stream(shared_, static_cast<int>(slot), card_, program_).run(); }).detach();
  return CUDA_SUCCESS;
}

void Executor::wedge_if_killed() {
  CardState& card = card_->state();
  if (card.wedge_on_kill.load() == 0 || shared_->restored_in.load() == 0 || shared_->leaving.load() != 0)
    return;
  card.hung = 1;
  card_->notify();
}

void Executor::watch_card() {
  CardState& card = card_->state();
  for (;;) {
    const std::uint32_t change = card.change.load();
    std::uint32_t error = static_cast<std::uint32_t>(card.contexts[context_slot_].injected_error);
    if (card.lost.load() != 0) error = CUDA_ERROR_DEVICE_UNAVAILABLE;
    std::uint32_t none = 0;
    if (error != 0 && shared_->error.compare_exchange_strong(none, error)) {
      // A thread that waits for a stream reads the error when the thread wakes.
      for (StreamShared& stream : shared_->streams) {
        stream.signal.fetch_add(1);
        futex_wake_all(stream.signal);
      }
    }
    futex_wait(card.change, change, -1);
  }
}

}  // namespace cudasim
