// SPDX-License-Identifier: Apache-2.0
// Tests of each data type with each operator, with values that every type represents exactly.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "tests/nccl/support/device.h"
#include "tests/nccl/support/ranks.h"

namespace nccl_test {
namespace {

// Returns the numbers as elements of type T, in bytes.
template <typename T>
std::vector<std::uint8_t> encoded(const std::vector<int>& numbers) {
  std::vector<std::uint8_t> bytes(numbers.size() * sizeof(T));
  for (std::size_t i = 0; i < numbers.size(); i++) {
    const T value = static_cast<T>(static_cast<float>(numbers[i]));
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof value);
  }
  return bytes;
}

std::vector<std::uint8_t> encoded(ncclDataType_t type, const std::vector<int>& numbers) {
  switch (type) {
    case ncclInt8:
      return encoded<std::int8_t>(numbers);
    case ncclUint8:
      return encoded<std::uint8_t>(numbers);
    case ncclInt32:
      return encoded<std::int32_t>(numbers);
    case ncclUint32:
      return encoded<std::uint32_t>(numbers);
    case ncclInt64:
      return encoded<std::int64_t>(numbers);
    case ncclUint64:
      return encoded<std::uint64_t>(numbers);
    case ncclFloat16:
      return encoded<__half>(numbers);
    case ncclFloat32:
      return encoded<float>(numbers);
    case ncclFloat64:
      return encoded<double>(numbers);
    case ncclBfloat16:
      return encoded<__nv_bfloat16>(numbers);
    case ncclFloat8e4m3:
      return encoded<__nv_fp8_e4m3>(numbers);
    default:
      return encoded<__nv_fp8_e5m2>(numbers);
  }
}

struct Operator {
  const char* name;
  ncclRedOp_t operation;
  std::vector<int> result;
};

class TypesTest : public RanksTest {
 protected:
  void check(ncclComm_t communicator, ncclDataType_t type, const Operator& row) {
    const std::vector<std::vector<int>> inputs{{2, 1, 4, 3}, {4, 3, 2, 1}};
    const Buffer<std::uint8_t> data(encoded(type, inputs[static_cast<std::size_t>(rank_)]));
    ASSERT_NCCL(ncclSuccess,
                nccl().ncclAllReduce(data.get(), data.get(), 4, type, row.operation, communicator, stream_));
    ASSERT_CUDA_OK(cuda().cuStreamSynchronize(stream_));
    EXPECT_EQ(encoded(type, row.result), data.values()) << row.name << " of type " << type;
  }
};

TEST_F(TypesTest, EachTypeIsReducedWithEachOperator) {
  if (!as_rank(2)) return;
  ncclComm_t communicator = init();
  ASSERT_NE(nullptr, communicator);
  const std::vector<Operator> operators{{"sum", ncclSum, {6, 4, 6, 4}},
                                        {"product", ncclProd, {8, 3, 8, 3}},
                                        {"maximum", ncclMax, {4, 3, 4, 3}},
                                        {"minimum", ncclMin, {2, 1, 2, 1}},
                                        {"average", ncclAvg, {3, 2, 3, 2}}};
  for (int type = 0; type < ncclNumTypes; type++) {
    for (const Operator& row : operators) check(communicator, static_cast<ncclDataType_t>(type), row);
  }
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(communicator));
}

TEST_F(TypesTest, SignedIntegersAreReducedWithWraparound) {
  if (!as_rank(2)) return;
  ncclComm_t communicator = init();
  ASSERT_NE(nullptr, communicator);
  const auto reduced = [&](std::vector<std::int8_t> zero, std::vector<std::int8_t> one,
                           ncclRedOp_t operation) {
    const Buffer<std::int8_t> data(rank_ == 0 ? zero : one);
    EXPECT_NCCL(ncclSuccess, nccl().ncclAllReduce(data.get(), data.get(), zero.size(), ncclInt8, operation,
                                                  communicator, stream_));
    EXPECT_CUDA_OK(cuda().cuStreamSynchronize(stream_));
    return data.values();
  };
  using Values = std::vector<std::int8_t>;
  EXPECT_EQ((Values{-56, -3}), reduced({100, -2}, {100, -1}, ncclSum));
  EXPECT_EQ((Values{100, -1}), reduced({100, -2}, {-100, -1}, ncclMax));
  EXPECT_EQ((Values{-100, -2}), reduced({100, -2}, {-100, -1}, ncclMin));
  EXPECT_EQ((Values{-2, 3}), reduced({-3, 5}, {-2, 2}, ncclAvg));  // rounds towards zero
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(communicator));
}

}  // namespace
}  // namespace nccl_test
