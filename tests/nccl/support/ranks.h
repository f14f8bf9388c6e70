// SPDX-License-Identifier: Apache-2.0
// Tests of several ranks. Each rank is a process: this binary with the same test. The first process starts
// the ranks, passes texts between them and checks how they end.
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
  int devices = 1;                                 // the minimum number of devices of the machine
  bool one_device = false;                         // whether all ranks use device 0 of one host
  std::map<std::string, std::string> environment;  // the environment of all ranks
};

constexpr auto kDeadline = std::chrono::seconds(60);

// A fixture whose tests begin with `if (!as_rank(N)) return;`.
class RanksTest : public testing::Test {
 protected:
  // Returns true in a rank, with a context and a stream. Returns false in the first process, once all ranks
  // have exited. The test is skipped where the machine has too few devices (two ranks can share a device).
  bool as_rank(int ranks, const RankOptions& options = {});
  void TearDown() override;

  // Sends a text to the other ranks and returns all texts, in the order of ranks. The text of an ended rank
  // is empty. All living ranks must call this function together.
  std::vector<std::string> exchange(const std::string& text = "-");
  // Returns in every rank the id that rank 0 has created.
  ncclUniqueId shared_id();
  // Creates a communicator of all ranks, and returns it.
  ncclComm_t init();
  [[noreturn]] static void kill_self();

  int rank_ = 0;
  int ranks_ = 0;
  CUstream stream_ = nullptr;

 private:
  void set_up_device(int device);
};

}  // namespace nccl_test
