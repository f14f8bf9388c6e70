// SPDX-License-Identifier: Apache-2.0
// One page of shared memory between keeper and rank: for values that the rank reads without a system call. The
// keeper writes, the rank reads.
// Threads: atomics; any thread. Ownership: each side owns its mapping; the memory file travels with Welcome.
// Errors: kIo, kProtocol for a page of the wrong size or content.
#pragma once

#include <atomic>
#include <cstdint>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::local {

// Bits of the request word. Zero while nothing is asked for: ckpt_barrier is one load and one branch then.
inline constexpr std::uint32_t kPauseAsked = 1;
inline constexpr std::uint32_t kGateClosed = 2;   // the lease is over: go no further than the next barrier
inline constexpr std::uint32_t kStopsAtStep = 4;  // stop_at counts
inline constexpr std::uint32_t kOneChange =
    256;  // added at each change of stop_at, so that none is slept through

struct ControlPage {
  std::uint32_t magic;
  std::uint32_t version;
  std::atomic<std::uint32_t> request;  // also a futex word: woken at each change
  std::uint32_t reserved;
  std::atomic<std::uint64_t> pause_request;  // the `request` of the Pause that kPauseAsked stands for
  std::atomic<std::uint64_t> pause_at;       // the barrier that it is meant for; 0: the next one
  // Ranks of gangs: the barrier that they wait at, or the next one if they are beyond it (GANG-1).
  std::atomic<std::uint64_t> stop_at;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(ControlPage) == 40);

class ControlPageMapping {
 public:
  // Keeper: a new page, its memory file in fd().
  static Result<ControlPageMapping> create();
  // Rank: maps a received page read-only, and closes its descriptor.
  static Result<ControlPageMapping> open(UniqueFd fd);
  ControlPageMapping(ControlPageMapping&& other) noexcept;
  ControlPageMapping& operator=(ControlPageMapping&& other) noexcept;
  ~ControlPageMapping();
  // page() must not be used any more.
  void unmap() noexcept;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] const ControlPage& page() const noexcept { return *page_; }

  // Keeper only.
  void ask_pause(std::uint64_t request, std::uint64_t at_barrier = 0) noexcept;
  void withdraw_pause() noexcept;
  void set_gate(bool closed) noexcept;
  // 0: it goes on.
  void set_stop_at(std::uint64_t barrier) noexcept;

  // Rank: blocks while the gate is closed.
  void wait_for_gate() const noexcept;
  // Rank, at this barrier: blocks while stop_at is not beyond it, until a pause is asked for here.
  void wait_at(std::uint64_t barrier) const noexcept;

 private:
  ControlPageMapping(UniqueFd fd, ControlPage* page) noexcept : fd_(std::move(fd)), page_(page) {}
  UniqueFd fd_;
  ControlPage* page_ = nullptr;
};

}  // namespace ckpt::local
