// SPDX-License-Identifier: Apache-2.0
// One operation of a communicator as the program requested it. All NCCL calls map to these kinds.
#pragma once

#include <cuda.h>

#include "tests/simulators/ncclsim/operation/datatype.h"

namespace ncclsim {

enum class Kind : std::uint32_t {
  kAllReduce,
  kReduce,
  kReduceScatter,
  kBroadcast,
  kAllGather,
  kSend,
  kReceive
};
constexpr std::uint32_t kKinds = 7;
const char* name_of(Kind kind);

struct Reduction {
  Combine combine = Combine::kSum;
  bool scales = false;                  // true if each rank's input is multiplied by `scalar`
  const void* device_scalar = nullptr;  // device address from which the operation reads the scalar when it
                                        // runs
  Scalar scalar;
  bool divides = false;  // true if the sum is divided by the number of ranks
};

struct Task {
  Kind kind = Kind::kAllReduce;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclInt8;
  Reduction reduction;
  ncclRedOp_t operation = ncclSum;  // the operator as named by the program, for comparison between ranks
  int root = 0;                     // the root or the peer
  CUstream stream = nullptr;

  [[nodiscard]] bool is_collective() const { return kind != Kind::kSend && kind != Kind::kReceive; }
  [[nodiscard]] bool reduces() const {
    return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
  }
  [[nodiscard]] std::size_t bytes() const { return count * size_of(type); }
  // Returns the bytes that a rank gives to the operation. bytes_out() returns the bytes that the rank
  // receives.
  [[nodiscard]] std::size_t bytes_in(int rank, int ranks) const;
  [[nodiscard]] std::size_t bytes_out(int rank, int ranks) const;
};

}  // namespace ncclsim
