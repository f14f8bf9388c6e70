// SPDX-License-Identifier: Apache-2.0
// The engine's coding threads. Whatever waits for the device or computes on chunks happens here. So a lane's
// thread only drives its transport, and the link never waits for a fingerprint. Work comes by a bounded
// lock-free queue; idle threads sleep. Internal to the engine.
//
// Threads: submit() from any. Handlers run on the pool's threads with the device's context current, `worker`
// telling which.
// Ownership: handlers outlive the pool; its end runs the queued work and joins. Nothing is allocated after
// create().
// Errors: create() only (kUnavailable: no thread).
#pragma once

#include <semaphore.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/cuda/driver.h"

namespace ckpt::engine {

class WorkHandler {
 public:
  virtual ~WorkHandler() = default;
  virtual void work(std::size_t item, std::size_t worker) = 0;
};

// Any number of producers and consumers. A cell's turn names its owner: `at` for the push at position `at`,
// `at + 1` for the pop.
class WorkQueue {
 public:
  struct Work {
    WorkHandler* handler = nullptr;
    std::size_t item = 0;
  };
  explicit WorkQueue(std::size_t min_capacity);
  // False: full.
  bool push(const Work& work) noexcept;
  // False: empty.
  bool pop(Work& work) noexcept;

 private:
  struct Cell {
    std::atomic<std::size_t> turn{0};
    Work work;
  };
  std::size_t mask_;
  std::unique_ptr<Cell[]> cells_;
  alignas(64) std::atomic<std::size_t> tail_{0};
  alignas(64) std::atomic<std::size_t> head_{0};
};

class WorkPool {
 public:
  // `capacity`: how much work there is at most at a time; the slots of all lanes.
  static Result<std::unique_ptr<WorkPool>> create(const Device& device, std::size_t threads,
                                                  std::size_t capacity);
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Never blocks.
  void submit(WorkHandler& handler, std::size_t item) noexcept;

 private:
  WorkPool(const Device& device, std::size_t capacity);
  void run(std::size_t worker);

  const Device& device_;
  WorkQueue queue_;
  sem_t waiting_;  // one count for each piece of work, and for each thread at the end
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

// The calling thread works in long pieces: it does not push another one off its core when it wakes, as a
// thread that waits for a user would, and is pushed off less. A message's stages wake each other many times
// per millisecond; where cores are few, each such switch costs the caches of both. Nothing changes for a
// thread that was given a policy on purpose.
void prefer_throughput() noexcept;

// `wanted`, or half of the cores: the transport and, on a software driver, the copies need the others; but
// two, so that the thread that waits for the device does not hold up chunks that can be encoded.
[[nodiscard]] std::size_t worker_count(std::uint32_t wanted) noexcept;

}  // namespace ckpt::engine
