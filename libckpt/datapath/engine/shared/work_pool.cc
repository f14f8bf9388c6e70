// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/shared/work_pool.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <system_error>

#include "libckpt/base/machine/cores.h"

namespace ckpt::engine {
namespace {

constexpr std::size_t kMaxWorkers = 16;

}  // namespace

WorkQueue::WorkQueue(std::size_t min_capacity)
    : mask_(std::bit_ceil(std::max<std::size_t>(min_capacity, 2)) - 1),
      cells_(std::make_unique<Cell[]>(mask_ + 1)) {
  for (std::size_t i = 0; i <= mask_; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
}

bool WorkQueue::push(const Work& work) noexcept {
  std::size_t at = tail_.load(std::memory_order_relaxed);
  for (;;) {
    Cell& cell = cells_[at & mask_];
    const std::size_t turn = cell.turn.load(std::memory_order_acquire);
    if (turn == at) {
      if (!tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) continue;
      cell.work = work;
      cell.turn.store(at + 1, std::memory_order_release);
      return true;
    }
    if (turn < at) return false;
    at = tail_.load(std::memory_order_relaxed);
  }
}

bool WorkQueue::pop(Work& work) noexcept {
  std::size_t at = head_.load(std::memory_order_relaxed);
  for (;;) {
    Cell& cell = cells_[at & mask_];
    const std::size_t turn = cell.turn.load(std::memory_order_acquire);
    if (turn == at + 1) {
      if (!head_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) continue;
      work = cell.work;
      cell.turn.store(at + mask_ + 1, std::memory_order_release);
      return true;
    }
    if (turn < at + 1) return false;
    at = head_.load(std::memory_order_relaxed);
  }
}

// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): sem_init() does
WorkPool::WorkPool(const Device& device, std::size_t capacity) : device_(device), queue_(capacity) {
  ::sem_init(&waiting_, 0, 0);
}

Result<std::unique_ptr<WorkPool>> WorkPool::create(const Device& device, std::size_t threads,
                                                   std::size_t capacity) {
  std::unique_ptr<WorkPool> pool(new WorkPool(device, capacity));
  pool->threads_.reserve(threads);
  try {
    for (std::size_t i = 0; i < threads; ++i)
      pool->threads_.emplace_back([raw = pool.get(), i] { raw->run(i); });
  } catch (const std::system_error& error) {
    return Error(ErrorCode::kUnavailable, std::string("Cannot start a coding thread: ") + error.what());
  }
  return pool;
}

// Ends the threads after the queued work. No thread submits any more, so a queue that appears empty is empty.
WorkPool::~WorkPool() {
  stopping_.store(true);
  for (std::size_t i = 0; i < threads_.size(); ++i) ::sem_post(&waiting_);
  for (std::thread& thread : threads_) thread.join();
  ::sem_destroy(&waiting_);
}

void WorkPool::submit(WorkHandler& handler, std::size_t item) noexcept {
  // The queue is never full, because each slot of each lane is in it at most once. A cell that is being
  // emptied is soon free.
  while (!queue_.push({&handler, item})) std::this_thread::yield();
  ::sem_post(&waiting_);
}

void WorkPool::run(std::size_t worker) {
  const ContextScope scope(device_);
  prefer_throughput();
  for (;;) {
    while (::sem_wait(&waiting_) != 0 && errno == EINTR) {
    }
    // Work is counted after its push, but an earlier push may still be incomplete. The thread then tries
    // again.
    WorkQueue::Work work;
    while (!queue_.pop(work)) {
      if (stopping_.load()) return;
      std::this_thread::yield();
    }
    work.handler->work(work.item, worker);
  }
}

void prefer_throughput() noexcept {
  const sched_param none{};
  if (::sched_getscheduler(0) == SCHED_OTHER) ::sched_setscheduler(0, SCHED_BATCH, &none);
}

std::size_t worker_count(std::uint32_t wanted) noexcept {
  const std::size_t cores = usable_cores();
  return std::clamp<std::size_t>(wanted != 0 ? wanted : std::max<std::size_t>(cores / 2, 2), 1, kMaxWorkers);
}

}  // namespace ckpt::engine
