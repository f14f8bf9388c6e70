// SPDX-License-Identifier: Apache-2.0
// Integer work in the ways that the runtime API offers a plain program. Each step depends on the previous
// step. The model has embedded kernels, a constant, a device variable, shared memory beyond 48 KiB and a
// cooperative launch. It also has pitched rows, pools, mapped host memory, host functions, a captured graph,
// and kernels of a library.
// Threads: one, and the driver's for host functions. Ownership: RAII. Errors end the program.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

#include "tests/programs/runtime/library.h"
#include "tools/examples/common/digest.h"
#include "tools/examples/common/random.h"

namespace ckpt::examples {

class Model {
 public:
  explicit Model(std::uint64_t seed);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void step();
  // Adds all results of the steps on the device and on the host to `digest`.
  void add_to(Digest& digest);

 private:
  void capture();
  void load_batch();
  void run_forward();
  void run_library();
  void run_rows();
  void run_temporaries();
  void run_together();
  void read_result();
  [[nodiscard]] unsigned blocks_at_once() const;

  Random random_;
  const Library library_;
  cudaStream_t main_ = nullptr;
  cudaStream_t side_ = nullptr;
  cudaEvent_t forward_done_ = nullptr;
  cudaEvent_t library_done_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
  // Pointers to device memory.
  std::uint64_t* weights_ = nullptr;
  std::uint64_t* activation_ = nullptr;  // has the same size as the weights
  std::uint64_t* sums_ = nullptr;        // one sum for each block
  std::uint64_t* field_ = nullptr;
  std::uint64_t* next_field_ = nullptr;
  std::uint64_t* rows_ = nullptr;
  std::size_t pitch_ = 0;  // bytes between two rows
  // Pointers to pinned host memory.
  std::uint64_t* batch_ = nullptr;
  std::uint64_t* result_ = nullptr;     // memory into which a kernel writes the result
  std::uint64_t* result_at_ = nullptr;  // device address of `result_`
  std::atomic<std::uint64_t> host_calls_{0};
};

}  // namespace ckpt::examples
