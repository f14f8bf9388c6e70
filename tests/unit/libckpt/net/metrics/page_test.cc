// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/metrics/page.h"

#include <gtest/gtest.h>

namespace ckpt::metrics {
namespace {

control::HttpRequest get(const std::string& authorization, const std::string& method = "GET") {
  control::HttpRequest request;
  request.method = method;
  request.path = {"metrics"};
  request.authorization = authorization;
  return request;
}

class PageTest : public ::testing::Test {
 protected:
  PageTest() { registry_.counter("a_total", "A.").add(); }
  unsigned status(const std::string& authorization, const std::vector<std::string>& tokens = {"one", "two"}) {
    return answer(registry_, get(authorization), tokens).status;
  }
  Registry registry_;
};

TEST_F(PageTest, RequestWithoutAValidTokenIsRefused) {
  EXPECT_EQ(status("Bearer one"), 200U);
  EXPECT_EQ(status("Bearer two"), 200U);
  EXPECT_EQ(status("Bearer three"), 401U);
  EXPECT_EQ(status("Bearer "), 401U);
  EXPECT_EQ(status("one"), 401U);
  EXPECT_EQ(status(""), 401U);
  EXPECT_EQ(status("", {}), 200U);
  EXPECT_EQ(answer(registry_, get(""), {"one"}).body.find("a_total"), std::string::npos);
}

TEST_F(PageTest, OnlyTheMetricsPathReturnsThePage) {
  control::HttpRequest request = get("");
  EXPECT_TRUE(is_page(request));
  request.path = {"metrics", "x"};
  EXPECT_FALSE(is_page(request));
  request.path = {"v1"};
  EXPECT_FALSE(is_page(request));
  request.path = {};
  EXPECT_FALSE(is_page(request));
}

TEST_F(PageTest, PageIsReadOnly) {
  EXPECT_EQ(answer(registry_, get("", "POST"), {}).status, 405U);
}

TEST_F(PageTest, ContentTypeContainsTheFormat) {
  const auto page = answer(registry_, get(""), {});
  EXPECT_EQ(page.content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_NE(page.body.find("a_total 1\n"), std::string::npos);
}

}  // namespace
}  // namespace ckpt::metrics
