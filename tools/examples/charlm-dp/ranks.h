// SPDX-License-Identifier: Apache-2.0
// The ranks of a job as torchrun's variables describe them (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; without them one
// rank), and NCCL between them. Errors: one line, then the program ends.
// Threads: one. Ownership: RAII; the driver's context outlives a Communicator.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>

namespace ckpt::examples {

struct Ranks {
  std::uint32_t rank = 0;
  std::uint32_t count = 1;

  static Ranks from_environment();
};

class Communicator {
 public:
  // Rank 0 makes the id and hands it to the others at the rendezvous, within five minutes.
  explicit Communicator(const Ranks& ranks);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Sums in place, on the legacy stream.
  void sum(CUdeviceptr values, std::size_t count, ncclDataType_t type);
  // Each rank has `share` floats of `values`, by its number. Sums: of its own share only. Gathers: those of all.
  void sum_shares(CUdeviceptr values, std::size_t share);
  void gather_shares(CUdeviceptr values, std::size_t share);

 private:
  [[nodiscard]] void* own_share(CUdeviceptr values, std::size_t share) const;

  const Ranks ranks_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace ckpt::examples
