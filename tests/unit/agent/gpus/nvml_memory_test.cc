// SPDX-License-Identifier: Apache-2.0
// Tests of free memory and of the processes' bytes while a process allocates more.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "agent/gpus/inventory.h"
#include "agent/gpus/nvml.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::agent {
namespace {

GpuFacts read_while_it_grows(int times) {
  void* fake = ::dlopen(FAKE_NVML, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(fake, nullptr) << ::dlerror();
  *static_cast<int*>(::dlsym(fake, "growths_left")) = times;
  auto nvml = Nvml::create(FAKE_NVML);
  EXPECT_TRUE(nvml) << nvml.error().to_string();
  auto gpus = (*nvml)->read_gpus();
  EXPECT_TRUE(gpus);
  return gpus->front();
}

TEST(NvmlMemory, MemoryAllocatedBetweenTheReadsIsCountedForTheProcess) {
  const GpuFacts gpu = read_while_it_grows(2);
  ASSERT_EQ(gpu.processes.size(), 1U);
  EXPECT_EQ(gpu.processes.front().bytes, 20U);
  EXPECT_EQ(gpu.free_bytes + gpu.processes.front().bytes, gpu.total_bytes);
}

TEST(NvmlMemory, RereadingStopsIfAProcessKeepsGrowing) {
  const GpuFacts gpu = read_while_it_grows(1000);
  ASSERT_EQ(gpu.processes.size(), 1U);
  EXPECT_EQ(gpu.free_bytes + gpu.processes.front().bytes + 10, gpu.total_bytes);
}

std::string reason_with(const std::string& library, std::vector<std::uint32_t> visible = {}) {
  asio::io_context io;
  Inventory inventory(io, library, std::chrono::seconds(20), std::move(visible));
  control::spawn(io.get_executor(), "refresh", inventory.refresh());
  io.run();
  return inventory.why_no_gpus();
}

TEST(InventoryReason, NodeWithoutGpusReportsTheReason) {
  EXPECT_NE(reason_with("/no/such/library.so").find("/no/such/library.so"), std::string::npos);
  EXPECT_EQ(reason_with(FAKE_NVML), "");
  EXPECT_EQ(reason_with(FAKE_NVML, {7}), "The GPU driver reports none of the GPUs in visible_gpus");
}

}  // namespace
}  // namespace ckpt::agent
