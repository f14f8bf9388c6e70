// SPDX-License-Identifier: Apache-2.0
// How the ranks of a new communicator find each other: by the root, a thread in the process that made the id.
// Each rank tells the root where it listens; once all have come, the root gives each the whole table.
//
// Threads: any; the root has one of its own, which ends once it has given out the table. Until then it lives
// as long as the process.
// Errors: ncclRemoteError: the root or a rank is gone; ncclInvalidUsage: ranks that do not fit together;
// ncclInvalidArgument: no id.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/simulators/ncclsim/transport/socket.h"

namespace ncclsim {

constexpr int kMaxRanks = 4096;

// A rank's description for the others, as it travels; all machines here have one order of bytes.
struct RankInfo {
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
  std::uint64_t host_hash = 0;
  std::int64_t bus_id = 0;
  Endpoint data;
  Endpoint control;
};

// Starts a root and writes the id by which it is found.
ncclResult_t start_root(ncclUniqueId* id);
// The number by which the ranks of the id know each other's connections.
ncclResult_t secret_of(const ncclUniqueId& id, std::uint64_t* secret);
// Waits for all ranks; `table` has one entry for each, in order.
ncclResult_t meet(const ncclUniqueId& id, const RankInfo& self, const Limits& limits,
                  std::vector<RankInfo>* table);

}  // namespace ncclsim
