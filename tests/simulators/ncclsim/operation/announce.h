// SPDX-License-Identifier: Apache-2.0
// The announcement. A rank describes an operation to its peer before the data, so that both ranks detect a
// mismatch.
#pragma once

#include "tests/simulators/ncclsim/operation/task.h"

namespace ncclsim {

struct Announcement {
  std::uint32_t tag = 0;
  std::uint32_t kind = 0;
  std::uint64_t number = 0;  // number among the communicator's collectives, or among the messages from one
                             // rank to another
  std::uint64_t count = 0;
  std::uint32_t type = 0;
  std::uint32_t operation = 0;
  std::int32_t root = 0;
  std::uint32_t unused = 0;
};

Announcement announcement_of(const Task& task, std::uint64_t number);
// Returns the announcement that the sender makes for this receive.
Announcement announcement_to(const Task& receive, std::uint64_t number);
// Compares two announcements. If they differ, returns ncclInvalidUsage with the operations of both ranks.
ncclResult_t compare(const Announcement& own, const Announcement& other, int rank, int peer);

}  // namespace ncclsim
