// SPDX-License-Identifier: Apache-2.0
// The memory that the driver library (in the program) and the executor of one context share. It has a command
// ring and a completion count for each stream. The library writes commands under the stream's mutex, and the
// stream's thread in the executor runs them in order. Slow requests and requests with descriptors use the
// socket instead (message.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tests/simulators/cudasim/card/futex.h"

namespace cudasim {

// The program's device addresses. The program reserves them without access, and each executor maps memory at
// the same addresses. AddressSanitizer and ThreadSanitizer both leave this range to the application.
inline constexpr std::uint64_t kDeviceBase = 0x7e9000000000ULL;
inline constexpr std::uint64_t kDeviceBytes = std::uint64_t{192} << 30;
// Pinned host memory. Both sides map it, so that kernels may use it, too.
inline constexpr std::uint64_t kHostBase = kDeviceBase + kDeviceBytes;
inline constexpr std::uint64_t kHostBytes = std::uint64_t{48} << 30;
// Module variables, with a slice for each context.
inline constexpr std::uint64_t kGlobalBase = kHostBase + kHostBytes;
inline constexpr std::uint64_t kGlobalSlice = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kGlobalBytes = std::uint64_t{16} << 30;
inline constexpr std::uint64_t kGranularity = std::uint64_t{2} << 20;

inline constexpr int kMaxStreams = 256;
inline constexpr int kMaxEvents = 65536;
inline constexpr std::uint32_t kRingBytes = 64 * 1024;
inline constexpr std::uint32_t kMaxArgumentBytes = 4096;
inline constexpr std::uint32_t kInlineBytes = 16 * 1024;

enum class Command : std::uint32_t {
  kSkip,        // filler at the ring's end
  kLaunch,      // LaunchCommand + argument bytes
  kCopy,        // a CopyCommand
  kCopyInline,  // CopyCommand + the copied bytes
  kSet,         // a SetCommand
  kWait,        // a WaitCommand
  kRecord,      // a RecordCommand
  kHost,        // a HostCommand
  kWriteValue,  // a ValueCommand
  kWaitValue,   // a ValueCommand
};

struct CommandHeader {
  std::uint32_t bytes;  // size including the header, a multiple of 64
  Command command;
  std::uint64_t sequence;
};

struct LaunchCommand {
  CommandHeader header;
  std::uint64_t function;
  std::uint32_t grid[3];
  std::uint32_t threads;
  std::uint32_t shared_bytes;
  std::uint32_t count;
  std::uint32_t offsets[64];
};

// A copy of rows of `bytes` bytes in slices. The steps are the distances between rows and between slices. A
// side with another process's pid is accessed in this process (pageable memory of the program, a peer's
// executor).
struct CopyCommand {
  CommandHeader header;
  std::uint64_t to;
  std::uint64_t from;
  std::uint64_t bytes;
  std::uint32_t rows;
  std::uint32_t slices;
  std::uint64_t to_row;
  std::uint64_t from_row;
  std::uint64_t to_slice;
  std::uint64_t from_slice;
  std::int32_t to_pid;
  std::int32_t from_pid;
};

// A memory set of rows with `count` elements.
struct SetCommand {
  CommandHeader header;
  std::uint64_t to;
  std::uint64_t count;
  std::uint64_t rows;
  std::uint64_t row_step;
  std::uint32_t width;
  std::uint32_t value;
};

struct WaitCommand {
  CommandHeader header;
  std::uint64_t stream;
  std::uint64_t sequence;
};

struct RecordCommand {
  CommandHeader header;
  std::uint64_t event;
};

struct HostCommand {
  CommandHeader header;
  std::uint64_t ticket;
};

// A write of or a wait for one word of `width` bytes; `flags` has the values of cuda.h.
struct ValueCommand {
  CommandHeader header;
  std::uint64_t address;
  std::uint64_t value;
  std::uint32_t width;
  std::uint32_t flags;
};

struct StreamShared {
  alignas(64) std::atomic<std::uint64_t> produced;  // total number of bytes written
  alignas(64) std::atomic<std::uint32_t> sleeps;  // futex; set while the executor's thread waits for commands
  alignas(64) std::atomic<std::uint64_t> consumed;  // total number of bytes consumed
  std::atomic<std::uint64_t> completed;             // sequence of the last finished command
  std::atomic<std::uint64_t> wake_at;               // the lowest sequence for which a thread sleeps
  std::atomic<std::uint32_t> signal;                // futex of the threads that wait for a sequence
  alignas(64) std::atomic<std::uint64_t> host_pending;
  std::atomic<std::uint64_t> host_done;
  std::atomic<std::uint32_t> host_signal;  // futex; host_done has increased
  alignas(64) unsigned char ring[kRingBytes];
};

struct ContextShared {
  std::atomic<std::uint32_t> error;  // a sticky CUresult
  std::atomic<std::uint32_t>
      restored_in;  // the program into which a restore has brought the context; 0: the context was created
                    // there
  std::atomic<std::uint32_t> leaving;       // nonzero once the program itself releases the context
  std::atomic<std::uint32_t> host_request;  // futex; a stream waits for a host function
  std::atomic<std::uint64_t> event_ns[kMaxEvents];
  StreamShared streams[kMaxStreams];
};

// Waits until `sequence` of a stream is completed. Returns false after `milliseconds`; the caller then checks
// for errors and calls again. Any number of threads of both processes may wait.
inline bool wait_completed(StreamShared& stream, std::uint64_t sequence, int milliseconds) {
  constexpr int kSpins = 100;
  for (int i = 0; i < kSpins; i++) {
    if (stream.completed.load(std::memory_order_acquire) >= sequence) return true;
    pause_cpu();
  }
  const std::uint32_t signal = stream.signal.load();
  std::uint64_t lowest = stream.wake_at.load();
  while (lowest > sequence && !stream.wake_at.compare_exchange_weak(lowest, sequence)) {
  }
  if (stream.completed.load() >= sequence) return true;
  futex_wait(stream.signal, signal, milliseconds);
  return stream.completed.load() >= sequence;
}

// Completes a sequence; only the stream's thread calls this. A waiter that registers between the two stores
// has read the old signal and detects the new one.
inline void complete(StreamShared& stream, std::uint64_t sequence) {
  stream.completed.store(sequence);
  if (sequence < stream.wake_at.load()) return;
  stream.wake_at.store(UINT64_MAX);
  stream.signal.fetch_add(1);
  futex_wake_all(stream.signal);
}

}  // namespace cudasim
