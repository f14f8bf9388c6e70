// SPDX-License-Identifier: Apache-2.0
// Tests of how many messages of nodes wait until a migration's record is durable.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "coordinator/migration/handover_driver.h"
#include "libckpt/base/random.h"

namespace ckpt::coordinator {
namespace {

struct Effects final : HandoverEffects {
  void before_event(migration::MigrationId, const migration::CoordinatorEvent&) override {}
  void send(const migration::HandoverInfo&, const migration::Send&) override {}
  void report(const migration::HandoverInfo&, const migration::Report&) override {}
  void on_begin_refused(migration::MigrationId, const Error&) override {}
  void on_event_done(migration::MigrationId id) override { done.insert(id); }
  [[nodiscard]] std::chrono::milliseconds duration(migration::MigrationId,
                                                   const migration::ArmTimer&) const override {
    return std::chrono::hours(1);
  }
  control::Task<Result<Forget>> forgettable() override {
    co_return Forget([](const migration::Record&) { return false; });
  }
  std::multiset<migration::MigrationId> done;
};

TEST(HandoverQueueTest, MessagesWaitingForARecordAreBounded) {
  constexpr migration::MigrationId kId = 7;
  const std::string folder = ::testing::TempDir() + "/queue-" + random_hex(8).value();
  std::filesystem::create_directory(folder);
  control::asio::io_context io(1);
  Effects effects;
  {
    HandoverDriver driver(io.get_executor(), migration::Journal::open(folder + "/journal").value(), {},
                          effects, [](const Error& error) { ADD_FAILURE() << error.to_string(); });
    ASSERT_TRUE(driver.begin(migration::HandoverInfo(kId, 1, 1, {migration::RankPlace()}, {}), true, true));
    // The loop does not run, so no record becomes durable meanwhile.
    for (int i = 0; i < 100'000; ++i)
      driver.on_message(wire::CommitMessage(kId, 1, 1, wire::Role::kSource, wire::Role::kCoordinator,
                                            wire::Body(wire::Query())));
    EXPECT_LE(driver.waiting(kId), HandoverDriver::kMaxQueued + 1);
    while (driver.is_busy(kId)) ASSERT_NE(io.run_one_for(std::chrono::seconds(30)), 0U);
    EXPECT_EQ(driver.waiting(kId), 0U);
    EXPECT_LE(effects.done.count(kId), HandoverDriver::kMaxQueued + 1);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ckpt::coordinator
