// SPDX-License-Identifier: Apache-2.0
// One page of shared memory between keeper and rank, for values that the rank reads without a system call.
// The keeper writes and the rank reads.
// Threads: atomics; any thread. Ownership: each side owns its mapping; the memory file travels with Welcome.
// Errors: kIo, kProtocol for a page of the wrong size or content.
#pragma once

#include <atomic>
#include <cstdint>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::local {

// Bits of the request word. The word is zero while nothing is requested: ckpt_barrier is then one load and
// one branch.
inline constexpr std::uint32_t kPauseAsked = 1;
inline constexpr std::uint32_t kGateClosed = 2;   // the bit that is set once the lease has expired, so that
                                                  // the rank may run no further than the next barrier
inline constexpr std::uint32_t kStopsAtStep = 4;  // the bit that is set while stop_at is valid
inline constexpr std::uint32_t kOneChange =
    256;  // the number added to the request word at each change of stop_at, so that no waiter misses a change

struct ControlPage {
  std::uint32_t magic;
  std::uint32_t version;
  std::atomic<std::uint32_t> request;  // the request word, also a futex that is woken at each change
  std::uint32_t reserved;
  std::atomic<std::uint64_t> pause_request;  // the `request` of the Pause that set kPauseAsked
  std::atomic<std::uint64_t> pause_at;       // the barrier at which to pause; 0 for the next one
  // For ranks of gangs: the barrier at which the rank waits. A rank that is beyond it waits at its next
  // barrier (GANG-1).
  std::atomic<std::uint64_t> stop_at;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(ControlPage) == 40);

class ControlPageMapping {
 public:
  // Makes, in the keeper, a new page. fd() is its memory file.
  static Result<ControlPageMapping> create();
  // Maps, in the rank, a received page read-only and closes its descriptor.
  static Result<ControlPageMapping> open(UniqueFd fd);
  ControlPageMapping(ControlPageMapping&& other) noexcept;
  ControlPageMapping& operator=(ControlPageMapping&& other) noexcept;
  ~ControlPageMapping();
  // Unmaps the page. page() must not be used afterwards.
  void unmap() noexcept;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] const ControlPage& page() const noexcept { return *page_; }

  // Requests a pause. For the keeper only, like the next functions.
  void ask_pause(std::uint64_t request, std::uint64_t at_barrier = 0) noexcept;
  void withdraw_pause() noexcept;
  void set_gate(bool closed) noexcept;
  // Sets the barrier at which the rank stops; 0 lets the rank continue.
  void set_stop_at(std::uint64_t barrier) noexcept;

  // Blocks, in the rank, while the gate is closed.
  void wait_for_gate() const noexcept;
  // Blocks, in the rank at this barrier, while stop_at is not beyond the barrier and no pause is requested
  // for it.
  void wait_at(std::uint64_t barrier) const noexcept;

 private:
  ControlPageMapping(UniqueFd fd, ControlPage* page) noexcept : fd_(std::move(fd)), page_(page) {}
  UniqueFd fd_;
  ControlPage* page_ = nullptr;
};

}  // namespace ckpt::local
