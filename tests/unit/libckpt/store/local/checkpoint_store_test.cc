// SPDX-License-Identifier: Apache-2.0
// The checkpoint store on a real folder: the cost of a version, sharing, removal and collection, the writer's
// lock, and refusals.
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "tests/unit/libckpt/store/local/support.h"

namespace ckpt::checkpoint_store::test {
namespace {

constexpr std::uint64_t kChunk = 64 << 10;

class CheckpointStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("gpumigrate-checkpoint-store-" + std::to_string(::getpid()));
    std::filesystem::remove_all(folder_);
    checkpoint_store_ = must(CheckpointStore::open(path(), {}));
  }
  void TearDown() override {
    checkpoint_store_.reset();
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] std::string path() const { return folder_.string(); }
  [[nodiscard]] std::uint64_t disk_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_))
      if (entry.is_regular_file()) bytes += entry.file_size();
    return bytes;
  }
  std::shared_ptr<const Version> write(const Content& content, const Content* before,
                                       const std::string& job = "job") {
    return must(write_version(*checkpoint_store_, job, content, before, kChunk));
  }
  Content restored(std::uint64_t number, const std::string& job = "job") {
    return must(restore_exactly(*checkpoint_store_, job, number));
  }

  std::filesystem::path folder_;
  std::unique_ptr<CheckpointStore> checkpoint_store_;
};

TEST_F(CheckpointStoreTest, SecondVersionStoresOnlyChangedChunks) {
  Content content;
  content.regions[1] = random_bytes(512 * kChunk, 1);
  content.regions[2] = random_bytes(10 * kChunk + 5000, 2);
  content.blobs["host"] = random_bytes(200'000, 3);
  write(content, nullptr);
  std::uint64_t before_bytes = disk_bytes();
  for (int i = 0; i < 5; ++i) {
    const Content before = content;
    for (int c = 0; c < 20; ++c)
      std::copy_n(random_bytes(kChunk, static_cast<std::uint64_t>(10'000 + 100 * i + c)).begin(), kChunk,
                  content.regions[1].begin() + static_cast<std::ptrdiff_t>((c * 25 + i) * kChunk));
    const auto version = write(content, &before);
    EXPECT_EQ(version->new_chunks, 20u);
    const std::uint64_t cost = disk_bytes() - before_bytes;
    EXPECT_LT(cost, 20 * kChunk * 11 / 10);
    EXPECT_GE(cost, 20 * kChunk) << "the content is random";
    EXPECT_EQ(checkpoint_store_->used_bytes(), disk_bytes() - std::filesystem::file_size(folder_ / "vault") -
                                                   std::filesystem::file_size(folder_ / "jobs/job/job"));
    before_bytes = disk_bytes();
    EXPECT_EQ(restored(version->number), content);
  }
}

TEST_F(CheckpointStoreTest, RanksAndVersionsOfAJobShareChunksButJobsDoNot) {
  Content content;
  content.regions[1] = random_bytes(64 * kChunk, 1);
  content.regions[2] = content.regions[1];
  const auto version = write(content, nullptr);
  EXPECT_EQ(version->new_chunks, 64u);
  const std::uint64_t one = checkpoint_store_->used_bytes();
  EXPECT_EQ(write(content, nullptr)->new_chunks, 0u) << "put again without a parent";
  const auto other = write(content, nullptr, "other");
  EXPECT_EQ(other->new_chunks, 64u);
  EXPECT_GT(checkpoint_store_->used_bytes(), one + 64 * kChunk);
  EXPECT_NE(other->regions[0].list.blocks, version->regions[0].list.blocks) << "names tell what jobs hold";
  EXPECT_EQ(restored(1, "other"), content);
}

TEST_F(CheckpointStoreTest, CompressibleChunksAreCompressedAndZeroesAreNotStored) {
  Content content;
  content.regions[1] = Bytes(100 * kChunk);
  Bytes text(40 * kChunk);
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<std::byte>("lossless "[i % 9] + i / kChunk);
  content.regions[2] = text;
  Bytes floats(40 * kChunk);
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, 0.02F);
  for (std::size_t i = 0; i < floats.size(); i += 4) {
    const float value = normal(random);
    std::memcpy(floats.data() + i, &value, 4);
  }
  content.regions[3] = floats;
  const auto version = write(content, nullptr);
  EXPECT_EQ(version->new_chunks, 80u);
  EXPECT_LT(version->written_bytes, 38 * kChunk) << "40 chunks of floats, and next to nothing for the rest";
  EXPECT_EQ(restored(1), content);
}

TEST_F(CheckpointStoreTest, RemovedVersionsFreeTheirSpace) {
  Content content;
  content.regions[1] = random_bytes(200 * kChunk, 1);
  std::vector<Content> history;
  for (std::uint64_t i = 0; i < 12; ++i) {
    const Content before = content;
    for (std::uint64_t c = 0; c < 20; ++c)
      std::copy_n(random_bytes(kChunk, 1000 * i + c).begin(), kChunk,
                  content.regions[1].begin() + static_cast<std::ptrdiff_t>((i * 7 + c * 3) % 200 * kChunk));
    write(content, i == 0 ? nullptr : &before);
    history.push_back(content);
    must(checkpoint_store_->retain_newest("job", 2));
    must(checkpoint_store_->collect("job"));
    EXPECT_EQ(restored(i + 1), content);
    if (i != 0) {
      EXPECT_EQ(restored(i), history[i - 1]);
    }
    EXPECT_LT(disk_bytes(), 220 * kChunk * 15 / 10) << "after version " << i + 1;
  }
  EXPECT_EQ(must(checkpoint_store_->versions("job")).size(), 2u);
  must(checkpoint_store_->remove_job("job"));
  EXPECT_LT(disk_bytes(), 1000u);
  EXPECT_EQ(checkpoint_store_->used_bytes(), 0u);
  EXPECT_EQ(checkpoint_store_->open_version("job").error().code(), ErrorCode::kNotFound);
}

TEST_F(CheckpointStoreTest, ManySmallPacksAreMerged) {
  Content content;
  content.regions[1] = random_bytes(8 * kChunk, 1);
  for (std::uint64_t i = 0; i < 80; ++i) {
    const Content before = content;
    std::copy_n(random_bytes(100, i).begin(), 100,
                content.regions[1].begin() + static_cast<std::ptrdiff_t>(i % 8 * kChunk));
    write(content, i == 0 ? nullptr : &before);
  }
  const auto count = [&] {
    return std::distance(std::filesystem::directory_iterator(folder_ / "jobs/job/packs"), {});
  };
  EXPECT_EQ(count(), 80);
  must(checkpoint_store_->collect("job"));
  EXPECT_EQ(count(), 1);
  EXPECT_TRUE(must(checkpoint_store_->verify("job")).is_clean());
  EXPECT_EQ(restored(80), content);
}

TEST_F(CheckpointStoreTest, VersionOpenForReadingSurvivesRemovalAndCollection) {
  Content content;
  content.regions[1] = random_bytes(50 * kChunk, 1);
  const Content first = content;
  write(content, nullptr);
  content.regions[1] = random_bytes(50 * kChunk, 2);
  write(content, &first);
  auto reader = must(checkpoint_store_->open_version("job", 1));
  must(checkpoint_store_->remove_version("job", 1));
  must(checkpoint_store_->collect("job"));
  MemoryTarget target;
  must(target.begin(reader->version()));
  must(reader->read_regions(target, {}));
  EXPECT_EQ(target.content.regions, first.regions);
  reader.reset();
  EXPECT_GT(must(checkpoint_store_->collect("job")).freed_bytes, static_cast<std::int64_t>(49 * kChunk));
  EXPECT_EQ(restored(2), content);
}

TEST_F(CheckpointStoreTest, ACommitWithAMissingChunkIsRefused) {
  auto writer = must(checkpoint_store_->begin_version("job", {}));
  const auto region = must(writer->add_region(Region(0, 1, 1, 3 * kChunk)));
  EXPECT_EQ(writer->reuse_chunk(region, 0).error().code(), ErrorCode::kNotFound);
  must(writer->put_chunk(region, 0, random_bytes(kChunk, 1)));
  must(writer->put_chunk(region, 2, random_bytes(kChunk, 2)));
  must(writer->reuse_rest(region));
  EXPECT_EQ(writer->missing(region), std::vector<std::uint64_t>{1});
  EXPECT_EQ(writer->commit({}).error().code(), ErrorCode::kRefused);
  must(writer->put_chunk(region, 1, random_bytes(kChunk, 3)));
  must(writer->put_chunk(region, 1, random_bytes(kChunk, 4)));  // the last content of the chunk counts
  const auto version = must(writer->commit({.step = 9, .labels = {{"kind", "snapshot"}}}));
  EXPECT_EQ(restored(1).regions.at(1)[kChunk], random_bytes(kChunk, 4)[0]);
  EXPECT_EQ(version->step, 9u);
  EXPECT_FALSE(writer->put_chunk(region, 1, random_bytes(kChunk, 4)).has_value());
}

TEST_F(CheckpointStoreTest, RegionsWithNewIdsKeepChunksByTheirOldIds) {
  Content content;
  content.regions[1] = random_bytes(300 * kChunk, 1);
  write(content, nullptr);
  auto writer = must(checkpoint_store_->begin_version("job", {}));
  const auto region = must(writer->add_region(Region(0, 77, 4, 300 * kChunk), RegionKey{0, 1}));
  must(writer->reuse_rest(region));
  EXPECT_TRUE(writer->missing(region).empty());
  const auto version = must(writer->commit({}));
  EXPECT_EQ(version->new_chunks, 0u);
  EXPECT_EQ(version->written_bytes, 0u);
  EXPECT_EQ(restored(2).regions.at(77), content.regions.at(1));
}

TEST_F(CheckpointStoreTest, TwoWritersCannotOpenTheSameCheckpointStore) {
  EXPECT_EQ(CheckpointStore::open(path(), {}).error().code(), ErrorCode::kRefused);
  auto writer = must(checkpoint_store_->begin_version("job", {}));
  EXPECT_EQ(checkpoint_store_->begin_version("job", {}).error().code(), ErrorCode::kRefused);
  EXPECT_EQ(checkpoint_store_->collect("job").error().code(), ErrorCode::kRefused);
  must(checkpoint_store_->begin_version("other", {}));
  writer.reset();
  must(checkpoint_store_->begin_version("job", {}));
  CheckpointStoreOptions reading;
  reading.writable = false;
  auto reader = must(CheckpointStore::open(path(), reading));
  EXPECT_EQ(reader->begin_version("job", {}).error().code(), ErrorCode::kRefused);
}

TEST_F(CheckpointStoreTest, ManyThreadsWriteChunksConcurrently) {
  const Bytes memory = random_bytes(600 * kChunk, 1);
  auto writer = must(checkpoint_store_->begin_version("job", {}));
  const auto region = must(writer->add_region(Region(3, 9, 1, memory.size())));
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t chunk = t; chunk < 600; chunk += 4)
        EXPECT_TRUE(
            writer->put_chunk(region, chunk, std::span(memory).subspan(chunk * kChunk, kChunk)).has_value());
    });
  for (auto& thread : threads) thread.join();
  must(writer->commit({}));
  EXPECT_EQ(restored(1).regions.at(9), memory);
  Bytes chunk(kChunk);
  must(must(checkpoint_store_->open_version("job"))->read_chunk(0, 599, chunk));
  EXPECT_TRUE(std::equal(chunk.begin(), chunk.end(), memory.end() - static_cast<std::ptrdiff_t>(kChunk)));
}

TEST_F(CheckpointStoreTest, ALostJobRecordIsRebuiltFromAVersion) {
  Content content;
  content.regions[1] = random_bytes(20 * kChunk, 1);
  write(content, nullptr);
  checkpoint_store_.reset();
  std::filesystem::remove(folder_ / "jobs/job/job");
  checkpoint_store_ = must(CheckpointStore::open(path(), {}));
  EXPECT_EQ(write(content, nullptr)->new_chunks, 0u) << "under another key every name is another";
  EXPECT_EQ(restored(2), content);
}

TEST_F(CheckpointStoreTest, DifferencesAreReportedByName) {
  Content content;
  content.regions[1] = random_bytes(600 * kChunk, 1);
  content.regions[2] = random_bytes(3 * kChunk, 2);
  content.blobs["host"] = random_bytes(1000, 1);
  content.blobs["plan"] = random_bytes(1000, 2);
  const Content before = content;
  write(content, nullptr);
  content.regions[1][5 * kChunk] ^= std::byte{1};
  content.regions[1][6 * kChunk] ^= std::byte{1};
  content.regions[1][599 * kChunk] ^= std::byte{1};
  content.regions.erase(2);
  content.regions[3] = random_bytes(kChunk, 4);
  content.blobs["host"][0] ^= std::byte{1};
  write(content, &before);
  const auto diff = must(checkpoint_store_->diff("job", 1, 2));
  ASSERT_EQ(diff.regions.size(), 3u);
  EXPECT_EQ(diff.regions[0].changed_chunks, 3u);
  ASSERT_EQ(diff.regions[0].ranges.size(), 2u);
  EXPECT_EQ(diff.regions[0].ranges[0].first, 5u);
  EXPECT_EQ(diff.regions[0].ranges[0].count, 2u);
  EXPECT_EQ(diff.regions[1].change, Change::kAdded);
  EXPECT_EQ(diff.regions[2].change, Change::kRemoved);
  EXPECT_EQ(diff.blobs[0].change, Change::kChanged);
  EXPECT_EQ(diff.blobs[1].change, Change::kSame);
  EXPECT_TRUE(must(checkpoint_store_->diff("job", 2, 2)).changed_bytes() == 0);
}

TEST_F(CheckpointStoreTest, AVersionCanBeMovedBetweenTiers) {
  Content content;
  content.regions[1] = random_bytes(30 * kChunk, 1);
  content.regions[2] = Bytes(2 * kChunk);
  content.blobs["host"] = random_bytes(100'000, 1);
  write(content, nullptr);
  const std::string other = path() + "/other-tier";
  {
    auto disk = must(CheckpointStore::open(other, {}));
    auto writer = must(disk->begin_version("job", {}));
    must(copy_version(*must(checkpoint_store_->open_version("job")), *writer, {}));
    must(writer->commit({}));
  }
  auto disk = must(CheckpointStore::open(other, {}));
  EXPECT_EQ(must(restore_exactly(*disk, "job", 1)), content);
}

TEST_F(CheckpointStoreTest, NamesThatLeaveTheFolderAreRefused) {
  for (const char* job : {"", ".", "..", "../x", "a/b", ".hidden", "a b"})
    EXPECT_EQ(checkpoint_store_->begin_version(job, {}).error().code(), ErrorCode::kInvalidArgument) << job;
}

}  // namespace
}  // namespace ckpt::checkpoint_store::test
