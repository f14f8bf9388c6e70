// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshots/checkpoint_store_access.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "libckpt/store/local/checkpoint_store.h"

namespace ckpt::agent::protect {
namespace {

// Tests with folders in memory, since thousands of versions are on the "disk" at once.
class CheckpointStoreAccessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/dev/shm/vault-accessXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    place_.path = folder_;
    auto opened = checkpoint_store::CheckpointStore::open(folder_, {});
    ASSERT_TRUE(opened) << opened.error().to_string();
    checkpoint_store_ = std::move(opened).value();
  }
  void TearDown() override {
    checkpoint_store_.reset();
    std::filesystem::remove_all(folder_);
  }
  void write(const std::string& job, std::uint64_t sequence) {
    image::StoredJob stored;
    stored.spec.job = 1;
    stored.sequence = sequence;
    stored.plan = image::build_plan({}, 64 << 10, 1, 1).value();
    checkpoint_store::VersionInput input;
    input.job_record = wire::encode(stored);
    auto writer = checkpoint_store_->begin_version(job, std::move(input));
    ASSERT_TRUE(writer) << writer.error().to_string();
    const auto written = writer.value()->commit({});
    ASSERT_TRUE(written) << written.error().to_string();
  }
  std::vector<wire::CheckpointStoreContents> parts(const std::string& job = {}) {
    auto listed = list_checkpoint_store(place_, job);
    if (!listed) ADD_FAILURE() << listed.error().to_string();
    return listed ? std::move(listed).value() : std::vector<wire::CheckpointStoreContents>{};
  }

  std::string folder_;
  CheckpointStorePlace place_;
  std::unique_ptr<checkpoint_store::CheckpointStore> checkpoint_store_;
};

TEST_F(CheckpointStoreAccessTest, ImageOfAParkedJobIsListedAmongThousandsOfNewerImages) {
  write("rests", 7);
  for (int i = 0; i < 2100; ++i) ASSERT_NO_FATAL_FAILURE(write("busy", 8));
  std::size_t rows = 0;
  std::size_t resting = 0;
  std::uint32_t number = 0;
  const auto all = parts();
  for (const wire::CheckpointStoreContents& part : all) {
    EXPECT_EQ(part.part, number++);
    EXPECT_EQ(part.more, &part != &all.back());
    EXPECT_LT(wire::encode(part).size(), wire::max_body_bytes(wire::FrameType::kCheckpointStoreContents));
    rows += part.images.size();
    for (const wire::ImageRow& row : part.images) resting += row.image_job == "rests" && row.sequence == 7;
  }
  EXPECT_EQ(rows, 2101U);
  EXPECT_EQ(resting, 1U);
}

TEST_F(CheckpointStoreAccessTest, ListOfAJobContainsNoOtherJob) {
  write("a", 1);
  write("b", 2);
  const auto one = parts("b");
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].image_job, "b");
  ASSERT_EQ(one[0].images.size(), 1U);
  EXPECT_EQ(one[0].images[0].sequence, 2U);
  ASSERT_EQ(parts("c").size(), 1U);
  EXPECT_TRUE(parts("c")[0].images.empty());
}

// A list opens no pack, so damage to a pack does not hide the versions.
TEST_F(CheckpointStoreAccessTest, ListDoesNotReadPacks) {
  write("a", 1);
  checkpoint_store_.reset();
  std::filesystem::create_directories(folder_ + "/jobs/a/packs/0000000009.pack");
  EXPECT_EQ(parts()[0].images.size(), 1U);
}

TEST(MemoryFolderOfACheckpointStore, FolderThatAnotherUserCouldHaveCreatedIsRefused) {
  std::string pattern = "/dev/shm/claimXXXXXX";
  const std::string place = ::mkdtemp(pattern.data());
  const auto claims = [&](const std::string& folder) {
    return claim_memory_folder(place + folder).has_value();
  };
  EXPECT_TRUE(claims("/a/node-a")) << "it is made";
  EXPECT_TRUE(claims("/a/node-a")) << "it is there";
  std::filesystem::create_directory_symlink(place + "/a/node-a", place + "/a/node-b");
  EXPECT_FALSE(claims("/a/node-b")) << "a link";
  ASSERT_EQ(::chmod((place + "/a/node-a").c_str(), 0777), 0);
  EXPECT_FALSE(claims("/a/node-a")) << "others may write";
  ASSERT_EQ(::chmod((place + "/a").c_str(), 0777), 0);
  EXPECT_FALSE(claims("/a/node-c")) << "others may exchange it";
  ASSERT_EQ(::chmod((place + "/a").c_str(), 01777), 0);
  EXPECT_TRUE(claims("/a/node-c")) << "as /dev/shm";
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown((place + "/a/node-c").c_str(), 65534, 65534), 0);
    EXPECT_FALSE(claims("/a/node-c")) << "another user's";
  }
  std::filesystem::remove_all(place);
}

}  // namespace
}  // namespace ckpt::agent::protect
