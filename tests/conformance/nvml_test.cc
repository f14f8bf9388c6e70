// SPDX-License-Identifier: Apache-2.0
// Tests that NVML shows the driver's devices.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "tests/conformance/support/support.h"

namespace conformance {
namespace {

constexpr int kNvmlSuccess = 0;
constexpr int kNvmlInsufficientSize = 7;
constexpr int kNvmlTimeout = 10;

struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct NvmlProcess {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance;
  unsigned compute_instance;
};

struct NvmlField {
  unsigned field;
  unsigned scope;
  long long timestamp;
  long long latency;
  unsigned type;
  int result;
  unsigned long long value;
};

struct NvmlEvent {
  void* device;
  unsigned long long type;
  unsigned long long data;
  unsigned gpu_instance;
  unsigned compute_instance;
};

class NvmlTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    library_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (library_ == nullptr) GTEST_SKIP() << "no NVML";
    ASSERT_EQ(kNvmlSuccess, call("nvmlInit_v2"));
    // The driver's device 0 may have another number in NVML.
    char id[32] = {};
    ASSERT_OK(api().cuDeviceGetPCIBusId(id, sizeof id, 0));
    ASSERT_EQ(kNvmlSuccess, call("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>(id), &gpu_));
  }
  void TearDown() override {
    if (library_ != nullptr) {
      EXPECT_EQ(kNvmlSuccess, call("nvmlShutdown"));
    }
    DriverTest::TearDown();
  }
  template <typename... Args>
  int call(const char* name, Args... args) {
    auto* function = reinterpret_cast<int (*)(Args...)>(::dlsym(library_, name));
    if (function != nullptr) return function(args...);
    ADD_FAILURE() << "NVML lacks " << name;
    return -1;
  }
  void* library_ = nullptr;
  void* gpu_ = nullptr;
};

TEST_F(NvmlTest, NvmlNamesAndIdsMatchTheDriver) {
  CUuuid uuid{};
  ASSERT_OK(api().cuDeviceGetUuid_v2(&uuid, 0));
  std::string expected = "GPU-";
  for (int i = 0; i < 16; i++) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) expected += '-';
    expected += hex;
  }
  char text[96] = {};
  ASSERT_EQ(kNvmlSuccess, call("nvmlDeviceGetUUID", gpu_, static_cast<char*>(text), unsigned{sizeof text}));
  EXPECT_EQ(expected, text);
  void* same = nullptr;
  ASSERT_EQ(kNvmlSuccess, call("nvmlDeviceGetHandleByUUID", static_cast<const char*>(text), &same));
  EXPECT_EQ(gpu_, same);
  char name[96] = {};
  char driver_name[96] = {};
  ASSERT_OK(api().cuDeviceGetName(driver_name, sizeof driver_name, 0));
  ASSERT_EQ(kNvmlSuccess, call("nvmlDeviceGetName", gpu_, static_cast<char*>(name), unsigned{sizeof name}));
  EXPECT_STREQ(driver_name, name);
  EXPECT_EQ(kNvmlInsufficientSize, call("nvmlDeviceGetName", gpu_, static_cast<char*>(name), 2U));
}

TEST_F(NvmlTest, NvmlReportsUsedMemoryAndProcesses) {
  CUdeviceptr memory = 0;
  NvmlMemory before{};
  NvmlMemory after{};
  ASSERT_EQ(kNvmlSuccess, call("nvmlDeviceGetMemoryInfo", gpu_, &before));
  ASSERT_OK(api().cuMemAlloc_v2(&memory, 64 * kMiB));
  ASSERT_EQ(kNvmlSuccess, call("nvmlDeviceGetMemoryInfo", gpu_, &after));
  EXPECT_GE(after.used, before.used + 64 * kMiB);
  unsigned count = 64;
  NvmlProcess processes[64] = {};
  ASSERT_EQ(kNvmlSuccess, call("nvmlDeviceGetComputeRunningProcesses_v3", gpu_, &count,
                               static_cast<NvmlProcess*>(processes)));
  bool found = false;
  for (unsigned i = 0; i < count; i++) {
    if (processes[i].pid != static_cast<unsigned>(::getpid())) continue;
    found = true;
    EXPECT_GE(processes[i].used, 64 * kMiB);
  }
  EXPECT_TRUE(found);
  EXPECT_OK(api().cuMemFree_v2(memory));
}

TEST_F(NvmlTest, AHealthyDeviceNeedsNoRecovery) {
  NvmlField fields[2] = {};
  fields[0].field = 230;
  fields[1].field = 144;
  ASSERT_EQ(kNvmlSuccess, call("nvmlDeviceGetFieldValues", gpu_, 2, static_cast<NvmlField*>(fields)));
  EXPECT_EQ(kNvmlSuccess, fields[0].result);
  EXPECT_EQ(0U, static_cast<unsigned>(fields[0].value));
  EXPECT_EQ(0U, static_cast<unsigned>(fields[1].value));
}

// A driver may report a query as unsupported. The answers that it gives must be consistent.
TEST_F(NvmlTest, TheTopologyIsConsistent) {
  constexpr int kNotSupported = 3;
  unsigned count = 0;
  ASSERT_EQ(kNvmlSuccess, call("nvmlDeviceGetCount_v2", &count));
  for (unsigned i = 0; i < count; i++) {
    void* other = nullptr;
    ASSERT_EQ(kNvmlSuccess, call("nvmlDeviceGetHandleByIndex_v2", i, &other));
    int there = -1;
    int back = -1;
    const int answer = call("nvmlDeviceGetTopologyCommonAncestor", gpu_, other, &there);
    ASSERT_EQ(answer, call("nvmlDeviceGetTopologyCommonAncestor", other, gpu_, &back));
    if (answer == kNotSupported) continue;  // unsupported, for example, on an H100 in a virtual machine
    ASSERT_EQ(kNvmlSuccess, answer);
    EXPECT_EQ(there, back);
    EXPECT_EQ(there == 0, other == gpu_);
  }
  unsigned long nodes[4] = {};
  const int affinity = call("nvmlDeviceGetMemoryAffinity", gpu_, 4U, static_cast<unsigned long*>(nodes), 0);
  EXPECT_TRUE(affinity == kNvmlSuccess || affinity == kNotSupported) << affinity;
  if (affinity == kNvmlSuccess) {
    EXPECT_NE(0UL, nodes[0] | nodes[1] | nodes[2] | nodes[3]);
  }
  unsigned mig = 7;
  unsigned pending = 7;
  const int mode = call("nvmlDeviceGetMigMode", gpu_, &mig, &pending);
  EXPECT_TRUE(mode == kNotSupported || (mode == kNvmlSuccess && mig <= 1 && pending <= 1)) << mode;
  int active = 7;
  const int link = call("nvmlDeviceGetNvLinkState", gpu_, 0U, &active);
  EXPECT_TRUE(link != kNvmlSuccess || (active >= 0 && active <= 1)) << link;
  const int beyond = call("nvmlDeviceGetNvLinkState", gpu_, 1000U, &active);
  EXPECT_NE(kNvmlSuccess, beyond);
}

// The agent relies on the layout of nvmlGpuFabricInfoV_t, versions 2 and 3.
TEST_F(NvmlTest, FabricQueryRefusesAnUnknownVersion) {
  struct {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health_mask;
    unsigned char summary;
  } info = {};
  static_assert(sizeof info == 40);
  constexpr int kVersionMismatch = 25;
  info.version = 77;
  EXPECT_NE(kNvmlSuccess, call("nvmlDeviceGetGpuFabricInfoV", gpu_, static_cast<void*>(&info)));
  info.version = 40 | 3U << 24;
  const int answer = call("nvmlDeviceGetGpuFabricInfoV", gpu_, static_cast<void*>(&info));
  EXPECT_TRUE(answer == kNvmlSuccess || answer == kVersionMismatch || answer == 3) << answer;
  if (answer == kNvmlSuccess) {
    EXPECT_LE(info.state, 3);
  }
}

TEST_F(NvmlTest, WaitingWithoutAnEventTimesOut) {
  void* set = nullptr;
  ASSERT_EQ(kNvmlSuccess, call("nvmlEventSetCreate", &set));
  ASSERT_EQ(kNvmlSuccess, call("nvmlDeviceRegisterEvents", gpu_, 8ULL, set));
  NvmlEvent event{};
  EXPECT_EQ(kNvmlTimeout, call("nvmlEventSetWait_v2", set, &event, 1U));
  EXPECT_EQ(kNvmlSuccess, call("nvmlEventSetFree", set));
}

}  // namespace
}  // namespace conformance
