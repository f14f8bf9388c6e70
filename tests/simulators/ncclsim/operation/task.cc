// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/operation/task.h"

namespace ncclsim {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "AllReduce";
    case Kind::kReduce:
      return "Reduce";
    case Kind::kReduceScatter:
      return "ReduceScatter";
    case Kind::kBroadcast:
      return "Broadcast";
    case Kind::kAllGather:
      return "AllGather";
    case Kind::kSend:
      return "Send";
    case Kind::kReceive:
      return "Recv";
  }
  return "nothing known";
}

std::size_t Task::bytes_in(int rank, int ranks) const {
  switch (kind) {
    case Kind::kReceive:
      return 0;
    case Kind::kReduceScatter:
      return bytes() * static_cast<std::size_t>(ranks);
    case Kind::kBroadcast:
      return rank == root ? bytes() : 0;
    default:
      return bytes();
  }
}

std::size_t Task::bytes_out(int rank, int ranks) const {
  switch (kind) {
    case Kind::kSend:
      return 0;
    case Kind::kAllGather:
      return bytes() * static_cast<std::size_t>(ranks);
    case Kind::kReduce:
      return rank == root ? bytes() : 0;
    default:
      return bytes();
  }
}

}  // namespace ncclsim
