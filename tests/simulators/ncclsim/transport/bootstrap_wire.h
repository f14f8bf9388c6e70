// SPDX-License-Identifier: Apache-2.0
// The messages between a rank and the bootstrap root.
#pragma once

#include "tests/simulators/ncclsim/transport/bootstrap.h"

namespace ncclsim {

// Rank to root, once.
struct Registration {
  std::uint64_t secret = 0;
  RankInfo info;
};

// Root to rank, once; on success the table of all ranks follows.
struct RootAnswer {
  std::uint32_t result = 0;  // ncclResult_t
  char text[124] = {};
};

}  // namespace ncclsim
