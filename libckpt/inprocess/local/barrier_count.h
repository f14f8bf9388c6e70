// SPDX-License-Identifier: Apache-2.0
// The number of barriers that a rank of a gang has reached. It is in a page of shared memory that the rank
// writes and its keeper reads (GANG-1, docs/adr/0038). Together with ControlPage::stop_at it stops ranks at
// one step without a collective.
// Threads: atomics; the rank's thread counts, and any thread reads. Ownership: each side owns its mapping;
// the memory file travels with Welcome. Errors: kIo, kProtocol for a page of the wrong size. The keeper
// relies on nothing except that the value is a number.
#pragma once

#include <atomic>
#include <cstdint>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::local {

class BarrierCount {
 public:
  // Makes, in the keeper, a new page that only the rank will write. fd() is its memory file.
  static Result<BarrierCount> create();
  // Maps, in the rank, a received page and closes its descriptor.
  static Result<BarrierCount> open(UniqueFd fd);
  BarrierCount(BarrierCount&& other) noexcept;
  BarrierCount& operator=(BarrierCount&& other) noexcept;
  ~BarrierCount();

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // Returns the count. The keeper calls this after it has written `stop_at`: a rank with a lower count is
  // certain to stop there.
  [[nodiscard]] std::uint64_t read() const noexcept;
  // Counts a barrier. The rank calls this at a barrier, before it reads `stop_at`. Returns the number of this
  // barrier, from 1 on.
  std::uint64_t count() noexcept;
  // Sets the count. The rank calls this before its first barrier, if it continues from another instance that
  // waited at that barrier.
  void go_on_from(std::uint64_t barrier) noexcept;

 private:
  using Word = std::atomic<std::uint64_t>;
  static_assert(Word::is_always_lock_free);
  BarrierCount(UniqueFd fd, Word* word) noexcept : fd_(std::move(fd)), word_(word) {}
  static Result<BarrierCount> map(UniqueFd fd);

  UniqueFd fd_;
  Word* word_ = nullptr;
};

}  // namespace ckpt::local
