// SPDX-License-Identifier: Apache-2.0
// A thread for each traced one, since a current context, a capture and a default stream are a thread's own. One of them
// works at a time.
// Threads: one calls run(). Ownership: the threads end with the object. Errors: none.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace ckpt::replay {

class Lanes {
 public:
  Lanes() = default;
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;
  ~Lanes();

  // Returns when `work` has been done on the traced thread's lane; false if it was not by then. The process must end
  // then, since the lane goes on with it: without destructors.
  [[nodiscard]] bool run(std::uint32_t traced_thread, const std::function<void()>& work,
                         std::chrono::seconds limit);
  [[nodiscard]] std::size_t count() const { return lanes_.size(); }

 private:
  struct Lane {
    std::mutex mutex;
    std::condition_variable changed;
    const std::function<void()>* work = nullptr;
    bool over = false;
    std::thread thread;
  };
  static void serve(Lane& lane);

  std::map<std::uint32_t, std::unique_ptr<Lane>> lanes_;
};

}  // namespace ckpt::replay
