// SPDX-License-Identifier: Apache-2.0
// Tests the memory tier: its content, the packs that leave it, and the remainder after its loss.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>

#include "libckpt/store/local/pack.h"
#include "tests/unit/libckpt/store/peer/fixture.h"

namespace ckpt::checkpoint_store::test {
namespace {

class Tiered : public Peers {
 protected:
  // Writes versions of random content. Each version is a separate pack of slightly more than `bytes`.
  std::vector<Content> write_versions(std::size_t count, std::uint64_t memory_limit,
                                      std::size_t bytes = 20'000) {
    std::vector<Content> all;
    auto server = serve(memory_limit);
    auto open =
        must(open_checkpoint_store(route_to(*server, must(server->grant(grant_of(true, true)))), true));
    for (std::size_t i = 0; i < count; ++i) {
      all.push_back(some_content(10 * (i + 1), bytes));
      must(write_version(*open.checkpoint_store, "job", all.back(), nullptr));
    }
    return all;
  }

  void expect_all(const std::vector<Content>& all) {
    auto open = must(open_checkpoint_store(here(), false));
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(must(restore_exactly(*open.checkpoint_store, "job", i + 1)), all[i]) << "version " << i + 1;
  }
};

TEST_F(Tiered, PacksAreInMemoryAndOtherFilesOnDisk) {
  const auto all = write_versions(2, 1 << 20);
  EXPECT_EQ(packs_in(memory()).size(), 2u);
  EXPECT_TRUE(packs_in(disk()).empty());
  EXPECT_TRUE(std::filesystem::exists(disk() + "/jobs/job/versions/0000000001.version"));
  expect_all(all);
}

TEST_F(Tiered, OldestPacksAreSpilledToDiskBeyondTheLimit) {
  const auto all = write_versions(5, 60'000);
  EXPECT_EQ(packs_in(memory()).size(), 2u);
  EXPECT_EQ(packs_in(disk()).size(), 3u);
  EXPECT_LT(packs_in(disk()).back(), packs_in(memory()).front());
  expect_all(all);
}

TEST_F(Tiered, PackLargerThanMemoryIsSpilledDuringItsWrite) {
  // The version exceeds the writer's buffer, so the pack has begun in memory.
  const auto all = write_versions(1, 6 << 20, 12 << 20);
  EXPECT_TRUE(packs_in(memory()).empty());
  EXPECT_EQ(packs_in(disk()).size(), 1u);
  expect_all(all);
}

TEST_F(Tiered, RemovingAVersionFreesMemory) {
  write_versions(2, 1 << 20);
  auto open = must(open_checkpoint_store(here(), true));
  must(open.checkpoint_store->retain_newest("job", 1));
  must(open.checkpoint_store->collect("job"));
  EXPECT_EQ(packs_in(memory()).size(), 1u);
  must(open.checkpoint_store->remove_job("job"));
  EXPECT_FALSE(std::filesystem::exists(memory() + "/jobs/job"));
  EXPECT_FALSE(std::filesystem::exists(disk() + "/jobs/job"));
}

TEST_F(Tiered, OwnNodeOfAJobKeepsItsImagesOnDisk) {
  auto all = write_versions(2, 1 << 20);
  {
    auto open = must(open_checkpoint_store(here(), true, "job"));
    EXPECT_TRUE(packs_in(memory()).empty()) << "the next version may keep what would go with the power";
    all.push_back(some_content(99));
    must(write_version(*open.checkpoint_store, "job", all.back(), &all[1]));
  }
  EXPECT_TRUE(packs_in(memory()).empty());
  EXPECT_EQ(packs_in(disk()).size(), 3u);
  expect_all(all);
}

TEST_F(Tiered, DurableGrantWritesToDisk) {
  auto all = write_versions(1, 1 << 20);
  auto server = serve(1 << 20);
  auto open =
      must(open_checkpoint_store(route_to(*server, must(server->grant(grant_of(true, false)))), true));
  EXPECT_TRUE(packs_in(memory()).empty());
  all.push_back(some_content(5));
  must(write_version(*open.checkpoint_store, "job", all.back(), nullptr));
  EXPECT_TRUE(packs_in(memory()).empty());
  expect_all(all);
}

TEST_F(Tiered, LostMemoryDamagesOnlyVersionsThatUseTheMemory) {
  const auto all = write_versions(3, 30'000);
  ASSERT_EQ(packs_in(disk()).size(), 2u);
  std::filesystem::remove_all(memory());  // the machine was powered off
  auto open = must(open_checkpoint_store(here(), false));
  const auto uses = must(open.checkpoint_store->uses("job"));
  ASSERT_EQ(uses.size(), 3u);
  EXPECT_TRUE(uses[0].whole && uses[1].whole);
  EXPECT_FALSE(uses[2].whole);
  MemoryTarget target;
  const auto report = must(open.checkpoint_store->restore("job", std::nullopt, target, {}));
  EXPECT_EQ(report.version->number, 2u);
  EXPECT_EQ(target.content, all[1]);
}

TEST_F(Tiered, EachVersionListsThePacksThatItUses) {
  Content first = some_content(1);
  first.regions.erase(2);
  first.blobs.clear();
  Content second = first;
  second.regions[1][0] ^= std::byte{1};
  auto checkpoint_store = must(CheckpointStore::open(disk(), {}));
  must(write_version(*checkpoint_store, "job", first, nullptr));
  must(write_version(*checkpoint_store, "job", second, &first));
  const auto uses = must(checkpoint_store->uses("job"));
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].packs.size(), 1u);
  EXPECT_EQ(uses[1].packs.size(), 2u);
  EXPECT_GT(uses[0].packs.at(1), 20'000u);
  EXPECT_LT(uses[1].packs.at(2), 10'000u);
  // The second version's list exists, but most of the listed data is missing.
  checkpoint_store.reset();
  std::filesystem::remove(disk() + "/jobs/job/packs/" + packs_in(disk()).front());
  const auto left = must(must(CheckpointStore::open(disk(), {.writable = false}))->uses("job"));
  ASSERT_EQ(left.size(), 2u);
  EXPECT_FALSE(left[0].whole || left[1].whole);
}

// Tests a spill that was interrupted after its copy, and a spill that was interrupted during its copy.
TEST_F(Tiered, AnInterruptedSpillCausesNoError) {
  const auto all = write_versions(2, 1 << 20);
  const auto names = packs_in(memory());
  std::filesystem::copy_file(memory() + "/jobs/job/packs/" + names[0],
                             disk() + "/jobs/job/packs/" + names[0]);
  std::ofstream(disk() + "/jobs/job/packs/" + names[1] + ".new") << "half";
  expect_all(all);
  auto open = must(open_checkpoint_store(here(), true));
  must(open.checkpoint_store->retain_newest("job", 1));
  must(open.checkpoint_store->collect("job"));
  EXPECT_EQ(packs_in(memory()), std::vector<std::string>{names[1]});
  // Data that the second version shares with the first has been written again. Both files on the disk have
  // been removed.
  EXPECT_THAT(packs_in(disk()), testing::Not(testing::Contains(names[0])));
  EXPECT_THAT(packs_in(disk()), testing::Not(testing::Contains(names[1] + ".new")));
  EXPECT_EQ(must(restore_exactly(*open.checkpoint_store, "job", 2)), all[1]);
}

// Packs that another writer has left in memory count toward the limit.
TEST_F(Tiered, NextWriterCountsPacksAlreadyInMemory) {
  auto all = write_versions(2, 60'000);
  ASSERT_EQ(packs_in(memory()).size(), 2u);
  auto server = serve(60'000);
  auto open = must(open_checkpoint_store(route_to(*server, must(server->grant(grant_of(true, true)))), true));
  all.push_back(some_content(77));
  must(write_version(*open.checkpoint_store, "job", all.back(), nullptr));
  EXPECT_EQ(packs_in(memory()).size(), 2u);
  EXPECT_EQ(packs_in(disk()).size(), 1u);
  expect_all(all);
}

}  // namespace
}  // namespace ckpt::checkpoint_store::test
