// SPDX-License-Identifier: Apache-2.0
// Helpers for tests that stop another process (checkpoint_job.cc) and restore it. The tests are skipped on
// drivers without cuCheckpointProcess*.
#pragma once

#include <poll.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/support/support.h"

namespace conformance {

struct CheckpointJob {
  CheckpointJob() : child("checkpoint_job") { EXPECT_EQ("ok", child.receive_text()); }
  bool does(const std::string& order) const {
    child.send_text(order);
    return child.receive_text() == "ok";
  }
  [[nodiscard]] bool answers_within(int milliseconds) const {
    pollfd answer{child.socket(), POLLIN, 0};
    return ::poll(&answer, 1, milliseconds) > 0;
  }
  Child child;
};

class CheckpointTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (api().cuCheckpointProcessLock == nullptr) GTEST_SKIP() << "the driver has no cuCheckpointProcess*";
    job_ = std::make_unique<CheckpointJob>();
  }
  void TearDown() override {
    job_.reset();
    DriverTest::TearDown();
  }
  [[nodiscard]] pid_t pid() const { return job_->child.pid(); }
  [[nodiscard]] CUprocessState state() const {
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    EXPECT_OK(api().cuCheckpointProcessGetState(pid(), &state));
    return state;
  }
  [[nodiscard]] CUresult lock(unsigned timeout_ms = 60000) const {
    CUcheckpointLockArgs arguments{};
    arguments.timeoutMs = timeout_ms;
    return api().cuCheckpointProcessLock(pid(), &arguments);
  }
  [[nodiscard]] CUresult checkpoint() const { return api().cuCheckpointProcessCheckpoint(pid(), nullptr); }
  [[nodiscard]] CUresult restore(std::vector<CUcheckpointGpuPair> pairs = {}) const {
    CUcheckpointRestoreArgs arguments{};
    arguments.gpuPairs = pairs.empty() ? nullptr : pairs.data();
    arguments.gpuPairsCount = static_cast<unsigned>(pairs.size());
    return api().cuCheckpointProcessRestore(pid(), &arguments);
  }
  [[nodiscard]] CUresult unlock() const { return api().cuCheckpointProcessUnlock(pid(), nullptr); }
  // Returns a pair for each device. The pairs exchange the first two devices.
  static std::vector<CUcheckpointGpuPair> exchanged_devices() {
    int count = 0;
    EXPECT_OK(api().cuDeviceGetCount(&count));
    std::vector<CUcheckpointGpuPair> pairs(static_cast<std::size_t>(count));
    for (int i = 0; i < count; i++) {
      EXPECT_OK(api().cuDeviceGetUuid_v2(&pairs[static_cast<std::size_t>(i)].oldUuid, i));
      EXPECT_OK(api().cuDeviceGetUuid_v2(&pairs[static_cast<std::size_t>(i)].newUuid, i < 2 ? 1 - i : i));
    }
    return pairs;
  }
  std::unique_ptr<CheckpointJob> job_;
};

}  // namespace conformance
