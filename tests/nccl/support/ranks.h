// SPDX-License-Identifier: Apache-2.0
// Tests of several ranks: each rank is a process, this binary again with the same test. The first process
// starts them, passes texts between them and looks at how they end.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/nccl/support/libraries.h"

namespace nccl_test {

struct RankOptions {
  std::set<int> killed;                            // ranks that kill themselves
  int devices = 1;                                 // that the machine has at least
  bool one_device = false;                         // all ranks on device 0, of one host
  std::map<std::string, std::string> environment;  // of all ranks
};

constexpr auto kDeadline = std::chrono::seconds(60);

// A fixture whose tests begin with `if (!as_rank(N)) return;`.
class RanksTest : public testing::Test {
 protected:
  // In a rank: true, with a context and a stream. In the first process: false, once all ranks have ended; it is
  // skipped where the machine has too few devices (two ranks can share one).
  bool as_rank(int ranks, const RankOptions& options = {});
  void TearDown() override;

  // Gives the others a text and gets theirs, in the order of ranks; that of a rank that is gone is empty. All
  // ranks that live call it.
  std::vector<std::string> exchange(const std::string& text = "-");
  // An id that rank 0 has made.
  ncclUniqueId shared_id();
  // A communicator of all ranks.
  ncclComm_t init();
  [[noreturn]] static void kill_self();

  int rank_ = 0;
  int ranks_ = 0;
  CUstream stream_ = nullptr;

 private:
  void set_up_device(int device);
};

}  // namespace nccl_test
