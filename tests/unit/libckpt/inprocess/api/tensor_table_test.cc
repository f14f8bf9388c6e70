// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/api/tensor_table.h"

#include <gtest/gtest.h>

namespace ckpt::job {
namespace {

Tensor tensor(const std::string& name, std::uint64_t region, std::uint64_t at, std::uint64_t bytes,
              ckpt_kind kind = CKPT_BUFFER) {
  Tensor value;
  value.name = name;
  value.region = region;
  (region == local::kNoRegion ? value.pointer : value.offset) = at;
  value.bytes = bytes;
  value.dtype = CKPT_U8;
  value.kind = kind;
  value.shape = {bytes};
  return value;
}

TEST(TensorTable, NestedTensorsAreCountedOnce) {
  TensorTable table;
  ASSERT_TRUE(table.add(tensor("whole", 1, 0, 1000)).has_value());
  ASSERT_TRUE(table.add(tensor("view", 1, 100, 50)).has_value());
  ASSERT_TRUE(table.add(tensor("tied", 1, 0, 1000)).has_value());
  ASSERT_TRUE(table.add(tensor("behind", 1, 1000, 24)).has_value());
  ASSERT_TRUE(table.add(tensor("elsewhere", 2, 0, 1000)).has_value());
  ASSERT_TRUE(table.add(tensor("scratch", 3, 0, 5000, CKPT_SCRATCH)).has_value());
  EXPECT_EQ(table.state_bytes(), 2024u);
}

TEST(TensorTable, PartialOverlapErrorNamesBothTensors) {
  TensorTable table;
  ASSERT_TRUE(table.add(tensor("first", 1, 100, 100)).has_value());
  for (const auto& other : {tensor("second", 1, 50, 100), tensor("second", 1, 150, 100)}) {
    const Result<void> added = table.add(other);
    ASSERT_FALSE(added.has_value());
    EXPECT_NE(added.error().message().find("'first'"), std::string::npos);
    EXPECT_NE(added.error().message().find("'second'"), std::string::npos);
  }
  EXPECT_TRUE(table.add(tensor("around", 1, 50, 200)).has_value());
  EXPECT_TRUE(table.add(tensor("elsewhere", 2, 150, 100)).has_value());
}

TEST(TensorTable, NamesAreUniqueUntilDropped) {
  TensorTable table;
  ASSERT_TRUE(table.add(tensor("t", 1, 0, 8)).has_value());
  EXPECT_FALSE(table.add(tensor("t", 1, 8, 8)).has_value());
  EXPECT_TRUE(table.remove("t"));
  EXPECT_FALSE(table.remove("t"));
  EXPECT_TRUE(table.add(tensor("t", 1, 8, 8)).has_value());
}

TEST(TensorTable, MemoryOutsideRegionsIsTransferredWithTheHostState) {
  TensorTable table;
  ASSERT_TRUE(table.add(tensor("plain", local::kNoRegion, 1 << 20, 64)).has_value());
  ASSERT_TRUE(table.add(tensor("larger", local::kNoRegion, 2 << 20, 128)).has_value());
  ASSERT_TRUE(table.add(tensor("dead", local::kNoRegion, 3 << 20, 4096, CKPT_SCRATCH)).has_value());
  EXPECT_EQ(table.state_bytes(), 0u);
  EXPECT_EQ(table.unexportable_bytes(), 192u);
  ASSERT_NE(table.largest_unexportable(), nullptr);
  EXPECT_EQ(table.largest_unexportable()->name, "larger");
}

}  // namespace
}  // namespace ckpt::job
