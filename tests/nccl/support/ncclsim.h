// SPDX-License-Identifier: Apache-2.0
// The fixture of tests of the software NCCL alone.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tests/nccl/support/device.h"
#include "tests/nccl/support/ranks.h"

namespace nccl_test {

inline constexpr std::size_t kCount = 64;

class NcclsimTest : public RanksTest {
 protected:
  bool begin(int ranks, const RankOptions& options = {}) {
    if (!as_rank(ranks, options)) return false;
    communicator_ = init();
    return communicator_ != nullptr;
  }
  ncclResult_t all_reduce(std::size_t count = kCount, ncclDataType_t type = ncclInt32,
                          ncclRedOp_t operation = ncclSum) {
    return nccl().ncclAllReduce(data(), data(), count, type, operation, communicator_, stream_);
  }
  void* data() {
    if (data_ == nullptr) data_ = std::make_unique<Buffer<std::int32_t>>(4 * kCount, 1);
    return data_->get();
  }
  void sync() { ASSERT_CUDA_OK(cuda().cuStreamSynchronize(stream_)); }
  void expect_error(ncclResult_t expected, const std::string& text) {
    EXPECT_EQ(expected, first_error(communicator_));
    EXPECT_NE(std::string::npos, last_error().find(text)) << last_error();
  }
  void end() {
    exchange();
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommAbort(communicator_));
    EXPECT_TRUE(stream_ends(stream_));
  }
  // Returns the number of open sockets of rank 1; 0 in other ranks. The bootstrap root of rank 0 closes its
  // own sockets at an unknown time.
  [[nodiscard]] int sockets() const {
    int count = 0;
    if (rank_ != 1) return 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      if (std::filesystem::read_symlink(entry.path(), error).string().rfind("socket:", 0) == 0) count++;
    }
    return count;
  }
  static RankOptions with(const std::string& name, const std::string& value) {
    RankOptions options;
    options.environment[name] = value;
    return options;
  }

  ncclComm_t communicator_ = nullptr;
  std::unique_ptr<Buffer<std::int32_t>> data_;
};

}  // namespace nccl_test
