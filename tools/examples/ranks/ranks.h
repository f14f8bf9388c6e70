// SPDX-License-Identifier: Apache-2.0
// The ranks of a job as torchrun's variables describe them (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT;
// without the variables one rank), and NCCL between the ranks. Errors: one line, then the program exits.
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
  // Registers the group of all ranks with the session, which also provides a communicator for moved ranks.
  // Construct the object before Session::ready(). Does nothing without a session.
  Communicator(Session& session, const Ranks& ranks);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Connects the ranks after Session::ready(). Rank 0 creates the id and sends the id to the other ranks at
  // the rendezvous, within five minutes. Does nothing after a move.
  void meet();

  // Returns a number that changes with the communicator. Graphs with calls on the previous communicator are
  // invalid.
  [[nodiscard]] std::uint64_t epoch() const { return group_ != nullptr ? ckpt_nccl_epoch(group_) : 0; }

  // Sums `count` values in place over all ranks. This function and the following ones enqueue their work on
  // the current stream.
  void sum(CUdeviceptr values, std::size_t count, ncclDataType_t type);
  // Sums the rank's own share over all ranks. Each rank has `share` floats of `values`, selected by its
  // number. gather_shares() gathers the shares of all ranks.
  void sum_shares(CUdeviceptr values, std::size_t share);
  void gather_shares(CUdeviceptr values, std::size_t share);
  // Sends values to another rank. receive() receives values from another rank. Both ranks must enqueue these
  // calls in the same order.
  void send(CUdeviceptr values, std::size_t count, ncclDataType_t type, std::uint32_t to);
  void receive(CUdeviceptr values, std::size_t count, ncclDataType_t type, std::uint32_t from);

 private:
  [[nodiscard]] ncclComm_t get() const { return group_ != nullptr ? ckpt_nccl_get(group_) : own_; }
  [[nodiscard]] void* own_share(CUdeviceptr values, std::size_t share) const;

  void check(ncclResult_t result, const char* what) const;

  const Ranks ranks_;
  ckpt_nccl* group_ = nullptr;  // the communicator if there is a session, otherwise null
  ncclComm_t own_ = nullptr;    // the communicator if there is no session, otherwise null
};

}  // namespace ckpt::examples
