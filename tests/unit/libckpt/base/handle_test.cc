// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/handle.h"

#include <gtest/gtest.h>

#include <vector>

namespace ckpt {
namespace {

std::vector<int> closed;

struct Traits {
  using Value = int;
  static constexpr int kNull = 0;
  static void close(int value) noexcept { closed.push_back(value); }
};
using Handle = UniqueHandle<Traits>;

class HandleTest : public ::testing::Test {
 protected:
  HandleTest() { closed.clear(); }
};

TEST_F(HandleTest, MovedHandleClosesOnce) {
  {
    Handle a(1);
    Handle b(std::move(a));
    Handle c;
    c = std::move(b);
    EXPECT_FALSE(a);
    EXPECT_TRUE(c);
    EXPECT_TRUE(closed.empty());
  }
  EXPECT_EQ(closed, std::vector<int>{1});
}

TEST_F(HandleTest, AssignmentAndResetCloseThePreviousHandle) {
  Handle a(1);
  a = Handle(2);
  a.reset(3);
  EXPECT_EQ(closed, (std::vector<int>{1, 2}));
  EXPECT_EQ(a.release(), 3);
  a.reset();
  EXPECT_EQ(closed, (std::vector<int>{1, 2}));
}

TEST_F(HandleTest, HandleHasNoSizeOverhead) {
  EXPECT_EQ(sizeof(Handle), sizeof(int));
}

}  // namespace
}  // namespace ckpt
