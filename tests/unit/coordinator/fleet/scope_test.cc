// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/scope.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

TEST(Scope, NodesAndTheirGpusAreParsed) {
  EXPECT_EQ(parse_scope("node-a").value(), Scope("node-a", std::nullopt));
  EXPECT_EQ(parse_scope("node-a:0").value(), Scope("node-a", 0));
  EXPECT_EQ(to_text(parse_scope("node-a:17").value()), "node-a:17");
  EXPECT_EQ(to_text(parse_scope("node-a").value()), "node-a");
  for (const char* wrong : {"", ":", ":0", "node-a:", "node-a:x", "node-a:1x", "node-a:-1", "node-a:0x1",
                            "node a", "a/b", "a:b:0", "node-a:4294967296", "node-a: 1"})
    EXPECT_TRUE(!parse_scope(wrong) && parse_scope(wrong).error().code() == ErrorCode::kInvalidArgument)
        << wrong;
}

TEST(Scope, ANodeCoversAllOfItsGpus) {
  EXPECT_TRUE(Scope("a", std::nullopt).covers(Place("a", 3)));
  EXPECT_FALSE(Scope("a", std::nullopt).covers(Place("b", 3)));
  EXPECT_TRUE(Scope("a", 3).covers(Place("a", 3)));
  EXPECT_FALSE(Scope("a", 3).covers(Place("a", 2)));
  EXPECT_FALSE(Scope("a", 3).covers(Place("b", 3)));
}

}  // namespace
}  // namespace ckpt::coordinator
