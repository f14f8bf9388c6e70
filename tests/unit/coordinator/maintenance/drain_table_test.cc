// SPDX-License-Identifier: Apache-2.0
#include "coordinator/maintenance/drain_table.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

namespace ckpt::coordinator {
namespace {

class DrainTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/drainsXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    reopen();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void reopen() {
    drains_.reset();
    store_.reset();
    store_.emplace(Store::open(folder_ + "/state.db").value());
    drains_.emplace(*store_, io_.get_executor());
    ASSERT_TRUE(drains_->load());
  }
  DrainId add(const std::string& node) {
    Drain drain;
    drain.scope = Scope(node, std::nullopt);
    return drains_->add(std::move(drain)).value();
  }
  void end(DrainId id, std::int64_t at_ms) {
    Drain& drain = *drains_->find(id);
    drain.result = DrainResult::kEmpty;
    drain.ended_ms = at_ms;
    ASSERT_TRUE(drains_->save(drain));
  }

  control::asio::io_context io_{1};
  std::string folder_;
  std::optional<Store> store_;
  std::optional<DrainTable> drains_;
};

TEST_F(DrainTableTest, DrainsSurviveARestart) {
  const DrainId first = add("a");
  const DrainId second = add("b");
  end(first, 5);
  const std::uint64_t revision = drains_->find(first)->revision;
  reopen();
  ASSERT_NE(drains_->find(first), nullptr);
  EXPECT_EQ(drains_->find(first)->revision, revision);
  EXPECT_EQ(drains_->open_of(Scope("a", std::nullopt)), nullptr);
  EXPECT_EQ(drains_->open_of(Scope("b", std::nullopt)), drains_->find(second));
}

TEST_F(DrainTableTest, ForgottenDrainIdIsNotReused) {
  const DrainId first = add("a");
  const DrainId second = add("b");
  end(first, 5);
  drains_->prune(Retention(0));
  EXPECT_EQ(drains_->find(first), nullptr);
  ASSERT_NE(drains_->find(second), nullptr);  // the drain is open
  end(second, 6);
  drains_->prune(Retention(0));
  reopen();
  EXPECT_TRUE(drains_->all().empty());
  EXPECT_GT(add("c"), second);
}

}  // namespace
}  // namespace ckpt::coordinator
