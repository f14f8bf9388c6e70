// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/http_target.h"

#include <gtest/gtest.h>

namespace ckpt::control {
namespace {

using Path = std::vector<std::string>;
using Query = std::map<std::string, std::string>;

TEST(HttpTarget, PathAndQueryAreDecoded) {
  const auto target = parse_http_target("/v1/a%20b%2Fc/log?from=0&after=x%40%26y&follow");
  ASSERT_TRUE(target.has_value());
  EXPECT_EQ(target->path, (Path{"v1", "a b/c", "log"}));
  EXPECT_EQ(target->query, (Query{{"from", "0"}, {"after", "x@&y"}, {"follow", ""}}));
}

TEST(HttpTarget, APlusIsNotDecodedAsASpace) {
  const auto target = parse_http_target("/a+b?c+d=e+f");
  ASSERT_TRUE(target.has_value());
  EXPECT_EQ(target->path, Path{"a+b"});
  EXPECT_EQ(target->query, (Query{{"c+d", "e+f"}}));
}

TEST(HttpTarget, TheLastSlashAddsNoSegment) {
  EXPECT_EQ(parse_http_target("/")->path, Path{});
  EXPECT_EQ(parse_http_target("/v1/jobs/")->path, (Path{"v1", "jobs"}));
  EXPECT_EQ(parse_http_target("//a//b")->path, (Path{"", "a", "", "b"}));
}

TEST(HttpTarget, TheLastValueOfARepeatedKeyIsUsed) {
  EXPECT_EQ(parse_http_target("/?a=1&a=2")->query, (Query{{"a", "2"}}));
}

TEST(HttpTarget, MalformedTargetsAreRefused) {
  for (const char* text : {"", "*", "v1/jobs", "http://host/v1", "?a=1", "/a%2", "/a%zz", "/?a=%", "/a b"})
    EXPECT_FALSE(parse_http_target(text).has_value()) << text;
}

TEST(HttpTarget, LengthIsBounded) {
  EXPECT_TRUE(parse_http_target("/" + std::string(kMaxHttpTargetBytes - 1, 'a')).has_value());
  EXPECT_FALSE(parse_http_target("/" + std::string(kMaxHttpTargetBytes, 'a')).has_value());
}

}  // namespace
}  // namespace ckpt::control
