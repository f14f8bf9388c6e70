// SPDX-License-Identifier: Apache-2.0
// The ranks of a job as torchrun's variables describe them (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; without them one
// rank), and NCCL between them. Errors: one line, then the program ends.
// Threads: one. Ownership: RAII; the driver's context outlives a Communicator.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>

#include "libckpt/include/ckpt/ckpt_nccl.h"
#include "tools/examples/common/gpu.h"

namespace ckpt::examples {

struct Ranks {
  std::uint32_t rank = 0;
  std::uint32_t count = 1;

  static Ranks from_environment();
};

class Communicator {
 public:
  // Joins all ranks; made before Session::ready(). A session also has a communicator for moved ranks.
  Communicator(Session& session, const Ranks& ranks);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // After Session::ready(). Rank 0 makes the id and hands it to the others at the rendezvous, within five minutes. After a
  // move there is nothing to do.
  void meet();

  // Another number: it is another communicator. Graphs with calls on the one before are void.
  [[nodiscard]] std::uint64_t epoch() const { return group_ != nullptr ? ckpt_nccl_epoch(group_) : 0; }

  // On the current stream, as all that follow. Sums in place.
  void sum(CUdeviceptr values, std::size_t count, ncclDataType_t type);
  // Each rank has `share` floats of `values`, by its number. Sums: of its own share only. Gathers: those of all.
  void sum_shares(CUdeviceptr values, std::size_t share);
  void gather_shares(CUdeviceptr values, std::size_t share);
  // From one rank to another, in the order in which both enqueue them.
  void send(CUdeviceptr values, std::size_t count, ncclDataType_t type, std::uint32_t to);
  void receive(CUdeviceptr values, std::size_t count, ncclDataType_t type, std::uint32_t from);

 private:
  [[nodiscard]] ncclComm_t get() const { return group_ != nullptr ? ckpt_nccl_get(group_) : own_; }
  [[nodiscard]] void* own_share(CUdeviceptr values, std::size_t share) const;

  void check(ncclResult_t result, const char* what) const;

  const Ranks ranks_;
  ckpt_nccl* group_ = nullptr;  // with a session
  ncclComm_t own_ = nullptr;    // without
};

}  // namespace ckpt::examples
