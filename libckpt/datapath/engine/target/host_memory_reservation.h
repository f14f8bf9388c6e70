// SPDX-License-Identifier: Apache-2.0
// Where the host state of a paused rank arrives at the target: a memory file that is mapped here, with its
// memory before the pause. As much again, or twice that where there is plenty, is held until the state is
// whole. The process that is made of it takes that memory. So no pause waits while the kernel reclaims and
// clears pages, or while a hypervisor finds them.
//
// Threads: any; one of its own fills and gives back. Ownership: the file is the caller's after take(), the
// mapping lives as long as this object.
// Errors: errno of the memory file. Memory that cannot be had ahead is no error: bytes that arrive then take
// it page by page.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::engine {

struct ReceivedHostState {
  UniqueFd file;  // a memory file; none if bytes is 0
  std::uint64_t bytes = 0;
};

class HostMemoryReservation {
 public:
  static constexpr std::chrono::seconds kMaxFill{20};  // less than a source waits for an answer

  // `most`: the length of the file until take(); `expected` bytes of it, and up to twice as many for the
  // process, get memory from now on.
  static Result<std::shared_ptr<HostMemoryReservation>> create(std::uint64_t most, std::uint64_t expected);
  ~HostMemoryReservation();
  HostMemoryReservation(const HostMemoryReservation&) = delete;
  HostMemoryReservation& operator=(const HostMemoryReservation&) = delete;

  [[nodiscard]] std::byte* memory() const noexcept { return memory_; }
  [[nodiscard]] std::uint64_t most() const noexcept { return most_; }

  // Until the memory is there, hurry() was called, or kMaxFill is over since create().
  void wait_until_filled();
  // The job is paused: every wait_until_filled() returns at once, now and later.
  void hurry();
  // All `bytes` have arrived: the file gets that length for good, and memory held for the process is given
  // back. Once.
  Result<ReceivedHostState> take(std::uint64_t bytes);

 private:
  HostMemoryReservation(UniqueFd file, std::byte* memory, std::uint64_t most)
      : file_(std::move(file)), memory_(memory), most_(most) {}
  void fill(std::uint64_t expected);
  void hold(std::uint64_t small, std::uint64_t large);
  bool populate(std::byte* at, std::uint64_t bytes);
  [[nodiscard]] bool is_over();

  UniqueFd file_;
  std::byte* memory_;
  const std::uint64_t most_;
  const std::chrono::steady_clock::time_point latest_ = std::chrono::steady_clock::now() + kMaxFill;
  std::mutex mutex_;  // the three below
  std::condition_variable changed_;
  bool filled_ = false;
  bool hurries_ = false;
  bool over_ = false;  // taken, or the reservation is being destroyed
  std::thread thread_;
};

}  // namespace ckpt::engine
