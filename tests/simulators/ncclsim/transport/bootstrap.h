// SPDX-License-Identifier: Apache-2.0
// The bootstrap by which the ranks of a new communicator find each other. Its root is a thread in the process
// that created the id. Each rank sends the root its listening address. Once all ranks have registered, the
// root sends each rank the whole table.
//
// Threads: any; the root has its own thread, which ends once the root has sent the table. Until then the
// thread exists as long as the process. Errors: ncclRemoteError: the root or a rank has exited;
// ncclInvalidUsage: ranks do not match; ncclInvalidArgument: invalid id.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/simulators/ncclsim/transport/socket.h"

namespace ncclsim {

constexpr int kMaxRanks = 4096;

// A rank's description for the other ranks, in its wire format. All machines have the same byte order.
struct RankInfo {
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
  std::uint64_t host_hash = 0;
  std::int64_t bus_id = 0;
  Endpoint data;
  Endpoint control;
};

// Starts a root, and writes the id by which ranks find the root.
ncclResult_t start_root(ncclUniqueId* id);
// Returns the number by which the ranks of the id recognize each other's connections.
ncclResult_t secret_of(const ncclUniqueId& id, std::uint64_t* secret);
// Waits for all ranks. `table` has one entry for each rank, in order.
ncclResult_t meet(const ncclUniqueId& id, const RankInfo& self, const Limits& limits,
                  std::vector<RankInfo>* table);

}  // namespace ncclsim
