// SPDX-License-Identifier: Apache-2.0
// The bounded queue from the scan to one lane: one producer, one consumer, no lock, and no allocation after
// construction.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace ckpt::engine {

template <class T>
class ChunkQueue {
 public:
  // Creates a queue. `capacity` is a power of two.
  explicit ChunkQueue(std::size_t capacity) : items_(capacity), mask_(capacity - 1) {}

  // Adds an item, in the producer. Returns false if the queue is full.
  bool push(const T& item) noexcept {
    const std::size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) > mask_) return false;
    items_[tail & mask_] = item;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }
  // Returns the oldest item, in the consumer. Returns nullptr if the queue is empty. The result is valid
  // until pop().
  [[nodiscard]] const T* front() const noexcept {
    const std::size_t head = head_.load(std::memory_order_relaxed);
    return head == tail_.load(std::memory_order_acquire) ? nullptr : &items_[head & mask_];
  }
  void pop() noexcept { head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  // Returns the size at this moment, on any thread.
  [[nodiscard]] std::size_t size() const noexcept {
    return tail_.load(std::memory_order_acquire) - head_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }

 private:
  std::vector<T> items_;
  std::size_t mask_;
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
};

}  // namespace ckpt::engine
