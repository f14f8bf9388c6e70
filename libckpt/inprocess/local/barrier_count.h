// SPDX-License-Identifier: Apache-2.0
// How many barriers a rank of a gang has reached: one page of shared memory that the rank writes and its keeper
// reads (GANG-1, docs/adr/0038). With ControlPage::stop_at it makes ranks stop at one step without a collective.
// Threads: atomics; the rank's thread counts, any thread reads. Ownership: each side owns its mapping; the memory file
// travels with Welcome. Errors: kIo, kProtocol for a page of the wrong size. The keeper believes no more than that
// the number is one.
#pragma once

#include <atomic>
#include <cstdint>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::local {

class BarrierCount {
 public:
  // Keeper: a new page that only the rank will write; its memory file in fd().
  static Result<BarrierCount> create();
  // Rank: maps a received page, and closes its descriptor.
  static Result<BarrierCount> open(UniqueFd fd);
  BarrierCount(BarrierCount&& other) noexcept;
  BarrierCount& operator=(BarrierCount&& other) noexcept;
  ~BarrierCount();

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // Keeper, after it has written `stop_at`: of a rank whose count is lower it is known that it stops there.
  [[nodiscard]] std::uint64_t read() const noexcept;
  // Rank, at a barrier, before it reads `stop_at`. Returns the number of this barrier, from 1 on.
  std::uint64_t count() noexcept;
  // Rank, before its first barrier: it goes on from another instance, which stood at that one.
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
