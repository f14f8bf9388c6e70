// SPDX-License-Identifier: Apache-2.0
// One stream of late that always has work: kernels that add to host memory, or copies into host memory. The
// program knows the expected value of each write at each time, and so detects a write that is lost, truncated
// or repeated.
// Threads: run() on one with the context current; touch() and stop from others. Errors: a failed driver call
// ends the program; wrong content is counted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <numeric>

#include "tests/programs/late/host_memory.h"
#include "tools/examples/common/gpu.h"

namespace ckpt::examples {

struct LatePlan {
  std::uint64_t rounds = 0;  // number of passes of a kernel, which sets its duration
  std::uint64_t seed = 0;
  std::uint64_t print_every = 0;  // interval in steps; 0: never
  std::uint64_t break_at = 0;     // the step in which the lane makes a deliberate error, which its checks
                                  // must find; 0: never
};

// The kinds of errors: a word that a kernel added to, its witness in device memory, and the content of a
// copy. The remaining kinds are a place that must not change after a copy, words of the host, and answers of
// the driver.
enum class Late { kWord, kWitness, kContent, kStill, kHost, kAnswer };
constexpr std::array<const char*, 6> kLateNames = {"word", "witness", "content", "still", "host", "answer"};

struct LateTally {
  std::uint64_t steps = 0;
  std::uint64_t checks = 0;
  std::array<std::uint64_t, kLateNames.size()> errors{};

  void count(Late what, std::uint64_t wrong) { errors[static_cast<std::size_t>(what)] += wrong; }
  void add(const LateTally& other);
  [[nodiscard]] std::uint64_t all_errors() const {
    return std::accumulate(errors.begin(), errors.end(), std::uint64_t{0});
  }
};

class Lane {
 public:
  Lane(const LatePlan& plan, HostKind kind, std::uint64_t host_bytes, const char* kernel);
  virtual ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  LateTally run(const std::atomic<bool>& stop);
  // Writes from the host to a word of the same pages, at any time, also during a move. Returns 1 if the word
  // does not hold the last written value.
  unsigned touch();

 protected:
  // Submits one piece of work, and checks an older piece that has ended.
  virtual void step(std::uint64_t number) = 0;
  // Checks all work while the stream is empty.
  virtual void check_all() = 0;

  LatePlan plan_;
  HostMemory host_;
  Kernels kernels_;
  CUfunction kernel_;
  CUstream stream_ = nullptr;
  LateTally tally_;

 private:
  volatile std::uint64_t* touched_;  // the last word of the host memory
  std::uint64_t touches_ = 0;
};

// A lane of kernels that add to host memory by its device pointer.
class AddLane final : public Lane {
 public:
  AddLane(const LatePlan& plan, HostKind kind);
  ~AddLane() override;

 private:
  static constexpr std::uint64_t kWords = 512;
  static constexpr std::size_t kUnderWay = 3;
  void step(std::uint64_t number) override;
  void check_all() override;

  LocalMemory witness_;
  std::array<CUevent, kUnderWay> ended_{};
  std::uint64_t launches_ = 0;
};

// A lane of copies of a kernel's output into places of host memory. Afterwards each place stays unchanged for
// some time.
class CopyLane final : public Lane {
 public:
  CopyLane(const LatePlan& plan, HostKind kind);
  ~CopyLane() override;

 private:
  static constexpr std::uint64_t kWords = 4096;  // words of a place
  static constexpr std::size_t kPlaces = 6;
  static constexpr std::uint64_t kUnderWay = 3;
  void step(std::uint64_t number) override;
  void check_all() override;
  void settle(std::uint64_t number);
  [[nodiscard]] std::uint64_t* place(std::uint64_t number) const {
    return host_.words() + number % kPlaces * kWords;
  }

  LocalMemory made_;
  std::array<CUevent, kPlaces> landed_{};
  std::uint64_t settled_ = 0;  // number of the last copy that has been checked
  std::uint64_t submitted_ = 0;
};

}  // namespace ckpt::examples
