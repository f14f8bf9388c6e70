// SPDX-License-Identifier: Apache-2.0
// One thread of stress. It has its own streams, buffers and random numbers, so that the seed alone determines
// its actions. A seed and a version define the content of every buffer. Kernels, copies and host callbacks on
// the buffer's stream write and check this content.
// Threads: run() on one; stop may be set by any. Errors: a failed driver call ends the program; wrong content
// is counted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/programs/stress/optional_driver.h"
#include "tests/programs/stress/repeated_graph.h"
#include "tests/programs/stress/streams.h"
#include "tools/examples/common/gpu.h"
#include "tools/examples/common/random.h"

namespace ckpt::examples {

struct Plan {
  unsigned streams = 4;            // number of this thread's streams
  std::uint64_t steps = 0;         // number of steps; 0: until stop is set
  std::uint64_t max_bytes = 0;     // maximum size of a buffer
  std::uint64_t memory_bytes = 0;  // size of all buffers of this thread
  std::uint64_t seed = 0;
  std::uint64_t print_every = 0;  // interval in steps; 0: never
  std::uint64_t break_at = 0;     // the step in which the worker secretly changes a byte; 0: never
};

// The kind of check that found an error.
enum class Finder { kKernel, kCopy, kCallback, kModule, kAnswer };
constexpr std::array<const char*, 5> kFinders = {"kernel", "copy", "callback", "module", "answer"};

struct Tally {
  std::uint64_t steps = 0;
  std::array<std::uint64_t, kFinders.size()> errors{};
  std::uint64_t checks = 0;
  std::uint64_t allocations = 0;
  std::uint64_t modules = 0;
  std::uint64_t callbacks = 0;
  std::uint64_t graph_launches = 0;
  std::uint64_t codes = 0;  // digest of the results of calls that must fail

  void count(Finder finder, std::uint64_t wrong) { errors[static_cast<std::size_t>(finder)] += wrong; }
  [[nodiscard]] std::uint64_t all_errors() const {
    return std::accumulate(errors.begin(), errors.end(), std::uint64_t{0});
  }
};

enum class Origin { kPlain, kPitch, kAsync, kPool, kVirtual };

struct Buffer {
  CUdeviceptr pointer = 0;
  std::uint64_t bytes = 0;
  std::uint64_t seed = 0;
  std::uint32_t version = 0;
  std::size_t stream = 0;
  Origin origin = Origin::kPlain;
  std::uint64_t reserved = 0;  // for kVirtual, bytes of the address range
  CUmemGenericAllocationHandle handle = 0;
};

class Worker {
 public:
  // Creates a worker. The context must be current.
  Worker(const Plan& plan, const OptionalDriver& driver);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Tally run(const std::atomic<bool>& stop);

 private:
  struct Callback;  // data that one host callback compares

  void step();
  void collect();

  void allocate();
  void allocate_small();
  Buffer make(std::uint64_t bytes, Origin origin);
  void map_virtual(Buffer& buffer);
  void destroy(const Buffer& buffer);
  void release_one();
  Buffer& any();
  [[nodiscard]] std::uint64_t any_size();
  [[nodiscard]] Origin any_origin();

  void fill(Buffer& buffer);
  void fill_from_host(Buffer& buffer);
  void check_by_kernel(const Buffer& buffer);
  void check_by_copy(const Buffer& buffer);
  void check_by_callback(const Buffer& buffer);
  void copy();
  void use_variable();
  void use_module();
  void use_graph();
  void check_codes();
  void change_a_byte();
  void note_code(CUresult result);

  Plan plan_;
  const OptionalDriver& driver_;
  Random random_;
  Kernels kernels_;
  CUfunction fill_;
  CUfunction verify_;
  Streams streams_;
  LocalMemory wrong_;  // one counter: differences that kernels found
  CUmemoryPool pool_ = nullptr;
  std::uint8_t* pinned_ = nullptr;
  std::unique_ptr<RepeatedGraph> graph_;
  std::vector<Buffer> buffers_;
  std::uint64_t used_ = 0;
  std::deque<std::unique_ptr<Callback>> callbacks_;  // callbacks in flight
  std::uint64_t variable_ = 0;                       // expected value of the module's variable
  Tally tally_;
};

}  // namespace ckpt::examples
