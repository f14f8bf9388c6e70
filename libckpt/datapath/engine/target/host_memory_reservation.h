// SPDX-License-Identifier: Apache-2.0
// The place where the host state of a paused rank arrives at the target: a mapped memory file whose memory is
// allocated before the pause. The same amount, or twice that if there is plenty, is reserved until the state
// is complete. The process that is restored from the state uses that memory. No pause therefore waits while
// the kernel reclaims and clears pages, or while a hypervisor finds pages.
//
// Threads: any; a separate thread fills and returns memory. Ownership: the caller owns the file after
// extract(); the mapping exists as long as this object. Errors: errno of the memory file. Memory that cannot
// be reserved is not an error: arriving bytes then allocate it page by page.
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
  UniqueFd file;  // a memory file; empty if bytes is 0
  std::uint64_t bytes = 0;
};

class HostMemoryReservation {
 public:
  static constexpr std::chrono::seconds kMaxFill{20};  // the longest wait, which is less than the time for
                                                       // which a source waits for an answer

  // Makes a reservation. `limit` is the length of the file until extract(). `expected` bytes of it are
  // allocated from now on, and up to twice as many for the process.
  static Result<std::shared_ptr<HostMemoryReservation>> create(std::uint64_t limit, std::uint64_t expected);
  ~HostMemoryReservation();
  HostMemoryReservation(const HostMemoryReservation&) = delete;
  HostMemoryReservation& operator=(const HostMemoryReservation&) = delete;

  [[nodiscard]] std::byte* memory() const noexcept { return memory_; }
  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }

  // Waits until the memory is allocated, hurry() was called, or kMaxFill has passed since create().
  void wait_until_filled();
  // Ends all waits because the job is paused: every wait_until_filled() returns at once, now and later.
  void hurry();
  // Ends the reservation when all `bytes` have arrived. The file gets that length permanently, and memory
  // reserved for the process is returned. Call it once.
  Result<ReceivedHostState> extract(std::uint64_t bytes);

 private:
  HostMemoryReservation(UniqueFd file, std::byte* memory, std::uint64_t limit)
      : file_(std::move(file)), memory_(memory), limit_(limit) {}
  void fill(std::uint64_t expected);
  void hold(std::uint64_t small, std::uint64_t large);
  bool populate(std::byte* at, std::uint64_t bytes);
  [[nodiscard]] bool is_over();

  UniqueFd file_;
  std::byte* memory_;
  const std::uint64_t limit_;
  const std::chrono::steady_clock::time_point latest_ = std::chrono::steady_clock::now() + kMaxFill;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool filled_ = false;
  bool hurries_ = false;
  bool over_ = false;  // whether the memory was extracted, or the reservation is being destroyed
  std::thread thread_;
};

}  // namespace ckpt::engine
