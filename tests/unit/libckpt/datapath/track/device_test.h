// SPDX-License-Identifier: Apache-2.0
// A device with the kernels of this folder, for tests that need a device.
#pragma once

#include <gtest/gtest.h>

#include <random>

#include "libckpt/datapath/track/scanner.h"
#include "tests/unit/libckpt/datapath/track/message.h"

namespace ckpt::track {

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = Device::open(0);
    ASSERT_TRUE(device.has_value()) << device.error().to_string();
    device_ = std::make_unique<Device>(*std::move(device));
    params_ = FingerprintParams::expand(test_key(), FingerprintPurpose::kChunks);
    auto kernels = TrackKernels::create(*device_, params_);
    ASSERT_TRUE(kernels.has_value()) << kernels.error().to_string();
    kernels_ = *std::move(kernels);
    scope_ = std::make_unique<ContextScope>(*device_);
  }
  void TearDown() override {
    for (const CUdeviceptr address : allocated_) device_->api().cuMemFree_v2(address);
    scope_.reset();
    kernels_.reset();
    device_.reset();
  }

  CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(device_->api().cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
    allocated_.push_back(address);
    return address;
  }
  CUdeviceptr upload(const std::vector<std::byte>& data) {
    const CUdeviceptr address = allocate(data.size());
    EXPECT_EQ(device_->api().cuMemcpyHtoD_v2(address, data.data(), data.size()), CUDA_SUCCESS);
    return address;
  }
  std::vector<std::byte> download(CUdeviceptr address, std::size_t bytes) {
    std::vector<std::byte> data(bytes);
    EXPECT_EQ(device_->api().cuMemcpyDtoH_v2(data.data(), address, bytes), CUDA_SUCCESS);
    return data;
  }
  std::unique_ptr<Device> device_;
  std::shared_ptr<const FingerprintParams> params_;
  std::shared_ptr<const TrackKernels> kernels_;
  std::unique_ptr<ContextScope> scope_;
  std::vector<CUdeviceptr> allocated_;
};

inline std::vector<std::byte> random_bytes(std::size_t bytes) {
  std::mt19937_64 random(bytes);
  std::vector<std::byte> data(bytes);
  for (std::byte& b : data) b = static_cast<std::byte>(random());
  return data;
}

}  // namespace ckpt::track
