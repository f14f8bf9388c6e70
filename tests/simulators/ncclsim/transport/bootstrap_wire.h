// SPDX-License-Identifier: Apache-2.0
// The messages between a rank and the bootstrap root.
#pragma once

#include "tests/simulators/ncclsim/transport/bootstrap.h"

namespace ncclsim {

// The message from a rank to the root, sent once.
struct Registration {
  std::uint64_t secret = 0;
  RankInfo info;
};

// The message from the root to a rank, sent once. On success the table of all ranks follows.
struct RootAnswer {
  std::uint32_t result = 0;  // an ncclResult_t
  char text[124] = {};
};

}  // namespace ncclsim
