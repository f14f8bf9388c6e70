// SPDX-License-Identifier: Apache-2.0
// A program over the hooks. The software driver takes the place of the real driver (GPUMIGRATE_REAL_CUDA).
// Calls go to ckpt::shim::hook, as the exports would pass them on.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "libckpt/inprocess/shim/core/gate.h"
#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/inprocess/shim/memory/memory.h"

#define ASSERT_OK(call) ASSERT_EQ(CUDA_SUCCESS, (call))
#define EXPECT_OK(call) EXPECT_EQ(CUDA_SUCCESS, (call))

namespace ckpt::shim {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

class ShimMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(real().cuInit(0));
    ASSERT_OK(hook::cuDevicePrimaryCtxRetain(&context_, 0));
    ASSERT_OK(real().cuCtxSetCurrent(context_));
    std::size_t total = 0;
    std::size_t free_bytes = 0;
    ASSERT_OK(hook::cuMemGetInfo_v2(&free_bytes, &total));
    ASSERT_TRUE(comes_back(total));  // the memory of an earlier context is freed when its executor exits
  }
  void TearDown() override {
    shim_memory().on_change({});
    EXPECT_OK(real().cuCtxSetCurrent(context_));
    EXPECT_OK(hook::cuDevicePrimaryCtxRelease_v2(0));
    EXPECT_TRUE(shim_memory().regions().empty());
  }

  static CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_OK(hook::cuMemAlloc_v2(&pointer, bytes));
    return pointer;
  }
  static void fill(CUdeviceptr pointer, std::size_t bytes, unsigned seed) {
    std::vector<std::uint32_t> words(bytes / 4);
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = static_cast<std::uint32_t>(i * 2654435761U + seed);
    EXPECT_OK(real().cuMemcpyHtoD_v2(pointer, words.data(), words.size() * 4));
  }
  static bool holds(CUdeviceptr pointer, std::size_t bytes, unsigned seed) {
    std::vector<std::uint32_t> words(bytes / 4);
    EXPECT_OK(real().cuMemcpyDtoH_v2(words.data(), pointer, words.size() * 4));
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] != static_cast<std::uint32_t>(i * 2654435761U + seed)) return false;
    }
    return true;
  }
  static std::size_t free_memory() {
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    EXPECT_OK(hook::cuMemGetInfo_v2(&free_bytes, &total));
    return free_bytes;
  }
  // Polls until `enough` bytes are free, for a minute at most.
  static bool comes_back(std::size_t enough) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (free_memory() < enough) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }
  static std::map<std::uint64_t, UniqueFd> export_all() {
    std::map<std::uint64_t, UniqueFd> bank;
    for (const RegionInfo& info : shim_memory().regions()) {
      Result<UniqueFd> fd = shim_memory().export_region(info.id);
      EXPECT_TRUE(fd.has_value());
      if (fd.has_value()) bank.emplace(info.id, *std::move(fd));
    }
    return bank;
  }

  const GateScope inside_{"test"};  // each export encloses its hook in such a scope
  CUcontext context_ = nullptr;
};

}  // namespace ckpt::shim
