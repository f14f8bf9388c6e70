// SPDX-License-Identifier: Apache-2.0
// Tests of GPU probes: with programs of this test (shell scripts), and with the real program on the software
// driver.
#include "agent/health/gpu_probes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "agent/gpus/nvml.h"
#include "tests/unit/agent/support/loop.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent {
namespace {

using health::GpuProbe;
using testing::HasSubstr;

class GpuProbesTest : public ::testing::Test {
 protected:
  void start(const std::string& program, Milliseconds deadline) {
    GpuProbeSettings settings;
    settings.program = program;
    settings.folder = folder_.path();
    settings.deadline = deadline;
    probes_ = GpuProbes::create(io_.get_executor(), std::move(settings),
                                [this](const std::string& uuid, const GpuProbeAnswer& answer) {
                                  uuids_.push_back(uuid);
                                  answers_.push_back(answer);
                                });
  }
  void start_script(const std::string& script, Milliseconds deadline = Milliseconds(60000)) {
    const std::string program = folder_ / "probe";
    std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
    ASSERT_EQ(::chmod(program.c_str(), 0700), 0);
    start(program, deadline);
  }
  GpuProbeAnswer ask(const std::string& uuid = "GPU-1") {
    const std::size_t before = answers_.size();
    probes_->ask(uuid);
    run_until(io_, [&] { return answers_.size() > before; });
    return answers_.back();
  }
  void TearDown() override {
    if (probes_) probes_->stop();
  }
  TemporaryFolder folder_;
  asio::io_context io_;
  std::shared_ptr<GpuProbes> probes_;
  std::vector<std::string> uuids_;
  std::vector<GpuProbeAnswer> answers_;
};

TEST_F(GpuProbesTest, ProbeSeesASingleGpuAndReportsItsResult) {
  start_script(
      "echo noise; echo '{\"gpu_probe\":{\"result\":\"failed\",\"detail\":\"'$CUDA_VISIBLE_DEVICES $1'\"}}'; "
      "exit 1");
  const GpuProbeAnswer answer = ask("GPU-7");
  EXPECT_EQ(answer.result, GpuProbe::kFailed);
  EXPECT_EQ(answer.detail, "GPU-7 --probe-gpu");
  EXPECT_EQ(uuids_.back(), "GPU-7");
}

TEST_F(GpuProbesTest, ProbeWithoutAResultIsReportedAsNotTried) {
  start_script("echo nonsense; exit 3");
  const GpuProbeAnswer answer = ask();
  EXPECT_EQ(answer.result, GpuProbe::kNotTried);
  EXPECT_EQ(parse_gpu_probe("{\"gpu_probe\":[]}").result, GpuProbe::kNotTried);
  EXPECT_EQ(parse_gpu_probe("{\"gpu_probe\":{\"result\":7}}").result, GpuProbe::kNotTried);
  EXPECT_EQ(parse_gpu_probe("{\"gpu_probe\":{\"result\":\"passed\"").result, GpuProbe::kNotTried);
  start(folder_ / "nowhere", Milliseconds(60000));
  EXPECT_EQ(ask().result, GpuProbe::kNotTried);
}

TEST_F(GpuProbesTest, ProbeThatDoesNotEndIsReportedAsHungAndKilled) {
  start_script("echo $$ > " + folder_.path() + "/pid; exec sleep 1000", Milliseconds(50));
  EXPECT_EQ(ask().result, GpuProbe::kHung);
  EXPECT_EQ(ask().result, GpuProbe::kHung);  // the result does not depend on whether the first probe has
                                             // ended by now
  pid_t pid = 0;
  std::ifstream(folder_ / "pid") >> pid;
  if (pid > 0) run_until(io_, [&] { return ::kill(pid, 0) != 0; });
}

TEST_F(GpuProbesTest, EachGpuRunsOneProbeAtATime) {
  start_script("echo started >> " + folder_.path() +
               "/starts; echo '{\"gpu_probe\":{\"result\":\"passed\"}}'");
  probes_->ask("GPU-1");
  probes_->ask("GPU-1");
  probes_->ask("GPU-2");
  run_until(io_, [&] { return answers_.size() == 2; });
  std::ifstream file(folder_ / "starts");
  int starts = 0;
  for (std::string line; std::getline(file, line);) ++starts;
  EXPECT_EQ(starts, 2);
}

// Tests of the real program on the software driver.
class RealProbeTest : public GpuProbesTest {
 protected:
  void SetUp() override {
    auto nvml = Nvml::create("libnvidia-ml.so.1");
    ASSERT_TRUE(nvml) << nvml.error().to_string();
    uuid_ = (*nvml)->read_gpus()->at(0).uuid;
    control("reset");
  }
  void TearDown() override {
    control("reset");
    GpuProbesTest::TearDown();
  }
  static void control(const std::string& words) {
    ASSERT_EQ(::system((std::string(CUDASIM_CTL " ") + words).c_str()), 0);
  }
  std::string uuid_;
};

TEST_F(RealProbeTest, ProbeOfAHealthyGpuPasses) {
  start(CONTEXT_PROGRAM, Milliseconds(60000));
  const GpuProbeAnswer answer = ask(uuid_);
  EXPECT_EQ(answer.result, GpuProbe::kPassed) << answer.detail;
}

TEST_F(RealProbeTest, ProbeOfAGpuWithUnreadableMemoryFails) {
  control("fail-copy 1");
  start(CONTEXT_PROGRAM, Milliseconds(60000));
  const GpuProbeAnswer answer = ask(uuid_);
  EXPECT_EQ(answer.result, GpuProbe::kFailed);
  EXPECT_THAT(answer.detail, HasSubstr("ECC_UNCORRECTABLE"));
}

TEST_F(RealProbeTest, HungGpuBlocksOnlyTheProbe) {
  control("hang");
  start(CONTEXT_PROGRAM, Milliseconds(500));
  EXPECT_EQ(ask(uuid_).result, GpuProbe::kHung);
}

TEST_F(RealProbeTest, MissingOrFullGpuIsReportedAsNotTried) {
  start(CONTEXT_PROGRAM, Milliseconds(60000));
  EXPECT_EQ(ask("GPU-00000000-0000-0000-0000-000000000000").result, GpuProbe::kNotTried);
  control("limit 0");
  EXPECT_EQ(ask(uuid_).result, GpuProbe::kNotTried);
}

}  // namespace
}  // namespace ckpt::agent
