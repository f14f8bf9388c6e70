// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/device/stream.h"

#include <cuda.h>
#include <sys/uio.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "tests/simulators/cudasim/card/futex.h"
#include "tests/simulators/cudasim/device/bulk_copy.h"
#include "tests/simulators/cudasim/device/fault.h"

namespace cudasim {
namespace {

using Kernel = void (*)(const cudasim_block*, void**);

constexpr std::uint64_t kXidPageFault = 31;
constexpr int kCheckInterval =
    100;  // ms between checks of the context's error while waiting for another party
constexpr std::uint64_t kBounceBytes = std::uint64_t{1} << 20;

std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000ULL + static_cast<std::uint64_t>(now.tv_nsec);
}

// Moves `bytes` between this process and another process. Returns 0 or an errno.
int remote_copy(pid_t pid, std::uint64_t local, std::uint64_t remote, std::uint64_t bytes, bool to_remote) {
  while (bytes > 0) {
    const iovec here{reinterpret_cast<void*>(local), bytes};
    const iovec there{reinterpret_cast<void*>(remote), bytes};
    const ssize_t moved = to_remote ? ::process_vm_writev(pid, &here, 1, &there, 1, 0)
                                    : ::process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (moved <= 0) return moved < 0 ? errno : EFAULT;
    local += static_cast<std::uint64_t>(moved);
    remote += static_cast<std::uint64_t>(moved);
    bytes -= static_cast<std::uint64_t>(moved);
  }
  return 0;
}

int bounce_copy(const CopyCommand& command) {
  static thread_local unsigned char* const buffer = static_cast<unsigned char*>(std::malloc(kBounceBytes));
  const auto local = reinterpret_cast<std::uint64_t>(buffer);
  for (std::uint64_t done = 0; done < command.bytes; done += kBounceBytes) {
    const std::uint64_t part = command.bytes - done < kBounceBytes ? command.bytes - done : kBounceBytes;
    int error = remote_copy(command.from_pid, local, command.from + done, part, false);
    if (error == 0) error = remote_copy(command.to_pid, local, command.to + done, part, true);
    if (error != 0) return error;
  }
  return 0;
}

int copy_row(const CopyCommand& command) {
  if (command.from_pid != 0 && command.to_pid != 0) return bounce_copy(command);
  if (command.from_pid != 0)
    return remote_copy(command.from_pid, command.to, command.from, command.bytes, false);
  if (command.to_pid != 0) return remote_copy(command.to_pid, command.from, command.to, command.bytes, true);
  bulk_copy(command.to, command.from, command.bytes);
  return 0;
}

int copy_sides(const CopyCommand& command) {
  CopyCommand row = command;
  for (std::uint32_t slice = 0; slice < command.slices; slice++) {
    for (std::uint32_t i = 0; i < command.rows; i++) {
      row.to = command.to + slice * command.to_slice + i * command.to_row;
      row.from = command.from + slice * command.from_slice + i * command.from_row;
      const int error = copy_row(row);
      if (error != 0) return error;
    }
  }
  return 0;
}

template <typename T>
void fill(std::uint64_t to, T value, std::uint64_t count) {
  auto* out = reinterpret_cast<T*>(to);
  for (std::uint64_t i = 0; i < count; i++) out[i] = value;
}

template <typename T>
std::atomic_ref<T> word(const ValueCommand* command) {
  return std::atomic_ref<T>(*reinterpret_cast<T*>(command->address));
}

template <typename T>
bool is_awaited(T found, T value, std::uint32_t flags) {
  switch (flags & 3) {
    case CU_STREAM_WAIT_VALUE_EQ:
      return found == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (found & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
      return static_cast<T>(~(found | value)) != 0;
    default:  // greater or equal with wraparound
      return static_cast<std::make_signed_t<T>>(found - value) >= 0;
  }
}

unsigned char* shared_memory(std::uint32_t bytes) {
  constexpr std::uint32_t kMax = 228 * 1024;
  static thread_local unsigned char* const memory = static_cast<unsigned char*>(std::aligned_alloc(64, kMax));
  return bytes == 0 || bytes > kMax ? nullptr : memory;
}

}  // namespace

void Stream::run() {
  prepare_fault_stack();
  std::uint64_t consumed = own_.consumed.load();
  for (;;) {
    wait_for_commands(consumed);
    const auto* command = reinterpret_cast<const CommandHeader*>(own_.ring + consumed % kRingBytes);
    const std::uint64_t sequence = command->sequence;
    const std::uint32_t bytes = command->bytes;
    const bool skip = command->command == Command::kSkip;
    if (!skip) execute(command);
    consumed += bytes;
    own_.consumed.store(consumed, std::memory_order_release);
    if (!skip) complete(own_, sequence);
  }
}

void Stream::wait_for_commands(std::uint64_t consumed) {
  constexpr int kSpins = 200;
  for (int i = 0; i < kSpins; i++) {
    if (own_.produced.load(std::memory_order_acquire) != consumed) return;
    pause_cpu();
  }
  for (;;) {
    own_.sleeps.store(1);
    if (own_.produced.load() != consumed) break;
    futex_wait(own_.sleeps, 1, -1);
    if (own_.produced.load() != consumed) break;
  }
  own_.sleeps.store(0);
}

void Stream::execute(const CommandHeader* command) {
  if (!healthy()) return;
  switch (command->command) {
    case Command::kSkip:
      break;
    case Command::kLaunch:
      launch(reinterpret_cast<const LaunchCommand*>(command));
      break;
    case Command::kCopy:
      copy(reinterpret_cast<const CopyCommand*>(command), nullptr);
      break;
    case Command::kCopyInline:
      copy(reinterpret_cast<const CopyCommand*>(command),
           reinterpret_cast<const unsigned char*>(command) + sizeof(CopyCommand));
      break;
    case Command::kSet:
      set(reinterpret_cast<const SetCommand*>(command));
      break;
    case Command::kWait: {
      const auto* wait = reinterpret_cast<const WaitCommand*>(command);
      while (healthy() && !wait_completed(shared_.streams[wait->stream], wait->sequence, kCheckInterval)) {
      }
      break;
    }
    case Command::kRecord:
      shared_.event_ns[reinterpret_cast<const RecordCommand*>(command)->event].store(now_ns());
      break;
    case Command::kHost:
      call_host(reinterpret_cast<const HostCommand*>(command));
      break;
    case Command::kWriteValue:
      write_value(reinterpret_cast<const ValueCommand*>(command));
      break;
    case Command::kWaitValue:
      wait_for_value(reinterpret_cast<const ValueCommand*>(command));
      break;
  }
}

void Stream::launch(const LaunchCommand* command) {
  delay();
  // The arguments stay in the ring, since the ring frees them only after the command.
  auto* bytes =
      const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(command) + sizeof(LaunchCommand));
  void* arguments[64];
  for (std::uint32_t i = 0; i < command->count; i++) arguments[i] = bytes + command->offsets[i];
  cudasim_block block{};
  std::memcpy(block.grid, command->grid, sizeof block.grid);
  block.threads = command->threads;
  block.shared_bytes = command->shared_bytes;
  block.shared = shared_memory(command->shared_bytes);
  const auto kernel = reinterpret_cast<Kernel>(command->function);
  const int signal = run_guarded([&] {
    for (block.index[2] = 0; block.index[2] < block.grid[2]; block.index[2]++) {
      for (block.index[1] = 0; block.index[1] < block.grid[1]; block.index[1]++) {
        for (block.index[0] = 0; block.index[0] < block.grid[0] && healthy(); block.index[0]++) {
          kernel(&block, arguments);
        }
      }
    }
  });
  if (signal != 0) fail(CUDA_ERROR_ILLEGAL_ADDRESS, kXidPageFault);
}

void Stream::copy(const CopyCommand* command, const unsigned char* inline_bytes) {
  delay();
  if (copy_fails()) return fail(CUDA_ERROR_ECC_UNCORRECTABLE, 0);
  CopyCommand sides = *command;
  if (inline_bytes != nullptr) sides.from = reinterpret_cast<std::uint64_t>(inline_bytes);
  int error = 0;
  const int signal = run_guarded([&] { error = copy_sides(sides); });
  if (signal != 0 || error == EFAULT) return fail(CUDA_ERROR_ILLEGAL_ADDRESS, kXidPageFault);
  if (error != 0) fail(CUDA_ERROR_OPERATING_SYSTEM, 0);
}

void Stream::set(const SetCommand* command) {
  delay();
  const int signal = run_guarded([&] {
    for (std::uint64_t row = 0; row < command->rows; row++) {
      const std::uint64_t to = command->to + row * command->row_step;
      if (command->width == 1)
        std::memset(reinterpret_cast<void*>(to), static_cast<int>(command->value), command->count);
      if (command->width == 2) fill(to, static_cast<std::uint16_t>(command->value), command->count);
      if (command->width == 4) fill(to, command->value, command->count);
    }
  });
  if (signal != 0) fail(CUDA_ERROR_ILLEGAL_ADDRESS, kXidPageFault);
}

void Stream::call_host(const HostCommand* command) {
  own_.host_pending.store(command->ticket);
  shared_.host_request.fetch_add(1);
  futex_wake_all(shared_.host_request);
  while (own_.host_done.load() < command->ticket && healthy()) {
    const std::uint32_t signal = own_.host_signal.load();
    if (own_.host_done.load() < command->ticket) futex_wait(own_.host_signal, signal, kCheckInterval);
  }
}

void Stream::write_value(const ValueCommand* command) {
  const int signal = run_guarded([&] {
    if (command->width == 4) {
      word<std::uint32_t>(command).store(static_cast<std::uint32_t>(command->value));
    } else {
      word<std::uint64_t>(command).store(command->value);
    }
  });
  if (signal != 0) fail(CUDA_ERROR_ILLEGAL_ADDRESS, kXidPageFault);
}

// Polls the word, as a device does: a write to the word wakes no thread.
void Stream::wait_for_value(const ValueCommand* command) {
  constexpr timespec kBetweenLooks{0, 20000};
  bool there = false;
  while (healthy()) {
    const int signal = run_guarded([&] {
      there = command->width == 4
                  ? is_awaited(word<std::uint32_t>(command).load(),
                               static_cast<std::uint32_t>(command->value), command->flags)
                  : is_awaited(word<std::uint64_t>(command).load(), command->value, command->flags);
    });
    if (signal != 0) return fail(CUDA_ERROR_ILLEGAL_ADDRESS, kXidPageFault);
    if (there) return;
    ::nanosleep(&kBetweenLooks, nullptr);
  }
}

void Stream::delay() {
  constexpr int kLookMilliseconds = 1000;
  for (;;) {
    const std::uint32_t change = card_.state().change.load();
    if (card_.state().hung.load() == 0 || !healthy()) break;
    futex_wait(card_.state().change, change, kLookMilliseconds);
  }
  const std::uint32_t latency = card_.state().latency_us.load(std::memory_order_relaxed);
  if (latency == 0) return;
  const timespec duration{latency / 1000000, static_cast<long>(latency % 1000000) * 1000};
  ::nanosleep(&duration, nullptr);
}

bool Stream::copy_fails() {
  std::atomic<std::uint32_t>& count = card_.state().fail_copy;
  std::uint32_t left = count.load(std::memory_order_relaxed);
  while (left > 0 && !count.compare_exchange_weak(left, left - 1)) {
  }
  return left == 1;
}

void Stream::fail(std::uint32_t result, std::uint64_t xid) {
  std::uint32_t none = 0;
  if (!shared_.error.compare_exchange_strong(none, result)) return;
  if (xid != 0) card_.raise_xid(xid, program_);
}

}  // namespace cudasim
