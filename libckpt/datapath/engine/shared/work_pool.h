// SPDX-License-Identifier: Apache-2.0
// The engine's coding threads. All waiting for the device and all computation on chunks happen here. A lane's
// thread therefore only drives its transport, and the link never waits for a fingerprint. Work arrives
// through a bounded lock-free queue; idle threads sleep. Internal to the engine.
//
// Threads: any thread may call submit(). Handlers run on the pool's threads with the device's context
// current; `worker` identifies the thread. Ownership: handlers outlive the pool; its destructor runs the
// queued work and joins. Nothing is allocated after create(). Errors: create() only (kUnavailable: no
// thread).
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

// A queue for any number of producers and consumers. A cell's turn identifies its owner: `at` for the push at
// position `at`, `at + 1` for the pop.
class WorkQueue {
 public:
  struct Work {
    WorkHandler* handler = nullptr;
    std::size_t item = 0;
  };
  explicit WorkQueue(std::size_t min_capacity);
  // Adds work. Returns false if the queue is full.
  bool push(const Work& work) noexcept;
  // Removes work. Returns false if the queue is empty.
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
  // Creates the pool. `capacity` is the maximum amount of work at a time: the slots of all lanes.
  static Result<std::unique_ptr<WorkPool>> create(const Device& device, std::size_t threads,
                                                  std::size_t capacity);
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Submits work. Never blocks.
  void submit(WorkHandler& handler, std::size_t item) noexcept;

 private:
  WorkPool(const Device& device, std::size_t capacity);
  void run(std::size_t worker);

  const Device& device_;
  WorkQueue queue_;
  sem_t waiting_;  // counts one for each piece of work, and one for each thread when the pool is destroyed
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

// Makes the calling thread prefer long time slices. When it wakes, it does not preempt another thread, as an
// interactive thread would, and is preempted less. A message's stages wake each other many times per
// millisecond. With few cores, each such switch evicts the caches of both threads. A thread with an
// explicitly set policy is not changed.
void prefer_throughput() noexcept;

// Returns `wanted` if it is not 0, else half of the cores but at least two; never more than kMaxWorkers. The
// transport and, on a software driver, the copies need the other cores. With two threads, a thread that waits
// for the device does not delay chunks that can be encoded.
[[nodiscard]] std::size_t worker_count(std::uint32_t wanted) noexcept;

}  // namespace ckpt::engine
