// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/latest_growth.h"

#include <gtest/gtest.h>

#include <vector>

namespace ckpt::agent {
namespace {

TEST(LatestGrowth, OnlyTheLatestReportIsPending) {
  asio::io_context loop;
  std::vector<std::uint64_t> told;
  const auto grew =
      latest_growth(loop.get_executor(), [&told](std::uint64_t filled) { told.push_back(filled); });
  for (std::uint64_t filled = 1; filled <= 50'000; ++filled) grew(filled);
  loop.run();
  EXPECT_EQ(told, std::vector<std::uint64_t>{50'000});
  loop.restart();
  grew(50'001);
  loop.run();
  EXPECT_EQ(told, (std::vector<std::uint64_t>{50'000, 50'001}));
}

}  // namespace
}  // namespace ckpt::agent
