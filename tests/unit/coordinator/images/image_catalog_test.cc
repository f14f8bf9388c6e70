// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/image_catalog.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "coordinator/images/contents_parts.h"
#include "coordinator/images/image_numbers.h"
#include "coordinator/images/image_retention.h"

namespace ckpt::coordinator {
namespace {

class CatalogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/catalogXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    reopen();
    job_.id = 3;
    job_.spec.name = "train";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void reopen() {
    catalog_.reset();
    store_.reset();
    store_.emplace(Store::open(folder_ + "/state.db").value());
    catalog_.emplace(*store_, [](JobId, Incarnation, std::int64_t) { return std::nullopt; });
    ASSERT_TRUE(catalog_->load());
  }
  wire::ImageRow row(std::uint64_t version, std::int64_t created_ms, bool damaged = false) {
    wire::ImageRow r;
    r.image_job = catalog_->image_job_of(job_);
    r.job = job_.id;
    r.version = version;
    r.created_ms = created_ms;
    r.damaged = damaged;
    return r;
  }
  static wire::CheckpointStoreContents contents(const std::string& folder, std::vector<wire::ImageRow> rows) {
    wire::CheckpointStoreContents c;
    c.folder = folder;
    c.images = std::move(rows);
    return c;
  }
  std::string newest(const ImageCatalog::Predicate& fits = [](const Image&) { return true; }) {
    const auto found = catalog_->newest(job_.id, fits);
    return found ? image_text(*found) : "";
  }

  std::string folder_;
  Job job_;
  std::optional<Store> store_;
  std::optional<ImageCatalog> catalog_;
};

// An agent lists an image that it cannot read by its name and number only.
TEST_F(CatalogTest, AnUnreadableVersionBelongsToTheJobInItsName) {
  wire::ImageRow unreadable;
  unreadable.image_job = catalog_->image_job_of(job_);
  unreadable.version = 2;
  unreadable.damaged = true;
  wire::ImageRow of_others = unreadable;
  of_others.image_job = "train.j3.another-cluster";
  const auto damaged = catalog_->apply("a", contents("", {row(1, 100), unreadable, of_others}));
  ASSERT_EQ(damaged.size(), 1U);
  EXPECT_EQ(image_text(damaged[0]), "j3.v2@a");
  ASSERT_EQ(catalog_->list().size(), 2U);
  EXPECT_TRUE(catalog_->list().front().damaged) << "its barrier is not known";
  EXPECT_EQ(newest(), "j3.v1@a");
}

TEST_F(CatalogTest, NewestImageIsChosenByBarrierTimeAcrossCheckpointStores) {
  catalog_->apply("a", contents("", {row(1, 100), row(2, 200)}));
  catalog_->apply("b", contents("", {row(1, 300)}));
  EXPECT_EQ(newest(), "j3.v1@b");
  EXPECT_EQ(newest([](const Image& image) { return image.node == "a"; }), "j3.v2@a");
}

TEST_F(CatalogTest, LaterVersionOfACheckpointStoreIsNewerDespiteAnEarlierTime) {
  catalog_->apply("a", contents("", {row(2, 1000), row(1, 2000)}));
  EXPECT_EQ(newest(), "j3.v2@a");
}

TEST_F(CatalogTest, HigherSequenceIsNewerInAnyCheckpointStoreAtAnyTime) {
  auto first = row(1, 9000);
  first.sequence = 4;
  auto second = row(1, 100);
  second.sequence = 5;
  catalog_->apply("a", contents("", {first}));
  catalog_->apply("b", contents("", {second}));
  catalog_->apply("c", contents("", {row(1, 99'999)}));
  EXPECT_EQ(newest(), "j3.v1@b");
  reopen();
  EXPECT_EQ(newest(), "j3.v1@b");
  EXPECT_EQ(catalog_->last_sequence(), 5U);
}

TEST_F(CatalogTest, InvalidSequenceIsIgnored) {
  auto wrong = row(1, 100);
  wrong.sequence = ~std::uint64_t{0};
  catalog_->apply("a", contents("", {wrong}));
  catalog_->apply("b", contents("", {row(1, 200)}));
  EXPECT_EQ(newest(), "j3.v1@b");
}

TEST_F(CatalogTest, ImageNumbersIncreaseAfterARestartAndAboveCheckpointStoreNumbers) {
  ImageNumbers numbers(*store_);
  const std::uint64_t first = numbers.next().value();
  EXPECT_GT(numbers.next().value(), first);
  ImageNumbers after(*store_);
  const std::uint64_t second = after.next().value();
  EXPECT_GT(second, first + 1);
  after.seen(second + 100'000);
  EXPECT_GT(after.next().value(), second + 100'000);
}

TEST_F(CatalogTest, NumbersIssuedBeforeAPowerCutAreNotReused) {
  ImageNumbers numbers(*store_);
  std::uint64_t given = numbers.next().value();
  constexpr const char* kDurable = "CREATE TABLE kept AS SELECT * FROM counters";
  ASSERT_TRUE(store_->database().execute(kDurable));
  for (int i = 0; i < 1'000; ++i) given = numbers.next().value();
  ASSERT_TRUE(store_->database().execute("DELETE FROM counters; INSERT INTO counters SELECT * FROM kept"));
  ImageNumbers after(*store_);
  EXPECT_GT(after.next().value(), given);
}

TEST_F(CatalogTest, ListOfAJobDoesNotAffectOtherJobs) {
  Job other;
  other.id = 4;
  other.spec.name = "other";
  auto its = row(1, 100);
  its.image_job = catalog_->image_job_of(other);
  its.job = 4;
  catalog_->apply("a", contents("", {row(1, 100), row(2, 200), its}));
  auto list = contents("", {row(2, 200), row(3, 300)});
  list.image_job = catalog_->image_job_of(job_);
  catalog_->apply("a", list);
  ASSERT_EQ(catalog_->list().size(), 3U);
  EXPECT_EQ(newest(), "j3.v3@a");
  EXPECT_EQ(catalog_->list(4).size(), 1U);
}

// The newest list of a folder is determined for each job separately.
TEST_F(CatalogTest, ListOfAJobDoesNotUpdateTheListsOfOtherJobs) {
  Job other;
  other.id = 4;
  other.spec.name = "other";
  auto its = row(1, 100);
  its.image_job = catalog_->image_job_of(other);
  its.job = 4;
  catalog_->apply("a", contents("/vault", {row(1, 100), its}));
  catalog_->apply("b", contents("/vault", {row(1, 100), row(2, 200), its}));
  auto list = contents("/vault", {its});
  list.image_job = its.image_job;
  catalog_->apply("a", list);
  EXPECT_EQ(newest(), "j3.v2@/vault");
}

TEST_F(CatalogTest, UnchangedListIsNotStored) {
  const auto commits = [this] { return store_->database().commits(); };
  catalog_->apply("a", contents("", {row(1, 100), row(2, 200)}));
  catalog_->apply("a", contents("/vault", {row(1, 100)}));
  auto of_job = contents("", {row(2, 200), row(1, 100)});
  of_job.image_job = catalog_->image_job_of(job_);
  const auto before = commits();
  for (int i = 0; i < 5; ++i) {
    catalog_->apply("a", contents("", {row(2, 200), row(1, 100)}));
    catalog_->apply("a", contents("/vault", {row(1, 100)}));
    catalog_->apply("a", of_job);
  }
  EXPECT_EQ(commits(), before);
  auto grown = row(2, 200);
  grown.disk_bytes = 4096;
  catalog_->apply("a", contents("", {row(1, 100), grown}));
  EXPECT_EQ(commits(), before + 1);
  catalog_->apply("a", contents("", {row(1, 100)}));
  EXPECT_EQ(commits(), before + 2);
  reopen();
  EXPECT_EQ(catalog_->list().size(), 2U);
  const auto again = commits();
  catalog_->apply("a", contents("", {row(1, 100)}));
  EXPECT_EQ(commits(), again) << "it is as it was stored";
}

TEST_F(CatalogTest, ListOfASharedFolderIsStoredAgainAfterAnotherNodeReportedADifferentList) {
  catalog_->apply("a", contents("/vault", {row(1, 100)}));
  catalog_->apply("b", contents("/vault", {row(1, 100)}));
  const auto before = store_->database().commits();
  catalog_->apply("a", contents("/vault", {row(1, 100)}));
  EXPECT_EQ(store_->database().commits(), before) << "both say the same";
  catalog_->apply("b", contents("/vault", {row(1, 100), row(2, 200)}));
  catalog_->apply("a", contents("/vault", {row(1, 100)}));
  EXPECT_EQ(newest(), "j3.v1@/vault");
  reopen();
  EXPECT_EQ(newest(), "j3.v1@/vault");
}

TEST_F(CatalogTest, ListWithAFailedWriteIsStoredWithTheNextList) {
  ASSERT_TRUE(store_->database().execute("PRAGMA query_only=ON"));
  catalog_->apply("a", contents("", {row(1, 100)}));
  ASSERT_TRUE(store_->database().execute("PRAGMA query_only=OFF"));
  catalog_->apply("a", contents("", {row(1, 100)}));
  reopen();
  EXPECT_EQ(newest(), "j3.v1@a");
}

TEST_F(CatalogTest, PagesContainEveryImageOnceInListOrder) {
  Job other;
  other.id = 4;
  other.spec.name = "other";
  auto its = row(1, 50);
  its.image_job = catalog_->image_job_of(other);
  its.job = 4;
  auto numbered = row(1, 10);
  numbered.sequence = 9;
  catalog_->apply("a", contents("", {row(1, 100), row(2, 200), its}));
  catalog_->apply("b", contents("", {numbered, its}));
  catalog_->apply("b", contents("/vault", {row(1, 100)}));
  std::vector<std::string> whole;
  for (const ListedImage& listed : catalog_->list()) whole.push_back(image_text(listed.image));
  ASSERT_EQ(whole.size(), 6U);
  for (const std::size_t limit : {1U, 2U, 4U, 6U, 7U}) {
    std::vector<std::string> read;
    std::optional<ImageCursor> after;
    for (bool more = true; more;) {
      const auto page = catalog_->page(after, limit);
      ASSERT_FALSE(page.images.empty());
      ASSERT_LE(page.images.size(), limit);
      for (const ListedImage& listed : page.images) read.push_back(image_text(listed.image));
      ASSERT_LE(read.size(), whole.size());
      more = page.more;
      after = parse_image_cursor(cursor_text(page.images.back()));
      ASSERT_TRUE(after);
    }
    EXPECT_EQ(read, whole) << limit;
  }
}

TEST_F(CatalogTest, PageContinuesAfterARemovedImage) {
  catalog_->apply("a", contents("", {row(1, 100), row(2, 200), row(3, 300)}));
  const auto first = catalog_->page(std::nullopt, 2);
  catalog_->apply("a", contents("", {row(1, 100), row(3, 300)}));
  const auto rest = catalog_->page(parse_image_cursor(cursor_text(first.images.back())), 2);
  ASSERT_EQ(rest.images.size(), 1U);
  EXPECT_EQ(image_text(rest.images[0].image), "j3.v3@a");
  EXPECT_FALSE(rest.more);
}

TEST(ImageCursorTest, InvalidCursorTextIsRefused) {
  for (const char* text : {"", "j3", "j3.v1@a", "j3.1.1.1.1@", "j3.1.1.1@a", "j3.1.1.1.1.1@a", "j3.1.1.x.1@a",
                           "j3.-1.1.1.1@a", "x.1.1.1.1@a", "@a.b", "j3.1.1.1.1"})
    EXPECT_FALSE(parse_image_cursor(text)) << text;
  EXPECT_TRUE(parse_image_cursor("j3.1.1.-5.1@/vault/a@b.c"));
}

TEST(ContentsPartsTest, ListIsCompleteOnceItsLastPartHasArrived) {
  ContentsParts lists;
  wire::CheckpointStoreContents part;
  part.images.resize(2);
  part.more = true;
  EXPECT_FALSE(lists.add("a", part));
  EXPECT_FALSE(lists.add("b", part));
  part.part = 1;
  part.more = false;
  const auto whole = lists.add("a", part);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->images.size(), 4U);
  EXPECT_FALSE(lists.add("a", part)) << "its beginning is used up";
  part.part = 2;
  EXPECT_FALSE(lists.add("b", part)) << "one is missing";
  part.part = 0;
  EXPECT_TRUE(lists.add("b", part));
}

class RetentionTest : public ::testing::Test {
 protected:
  static ListedImage image(JobId job, std::uint64_t version, std::int64_t ended_ms) {
    ListedImage listed;
    listed.image.job = job;
    listed.image.version = version;
    listed.job_ended_ms = ended_ms;
    return listed;
  }
  std::string collected() {
    std::string text;
    for (const ListedImage& listed : images_to_collect(listed_, limits_, 10'000))
      text += job_text(listed.image.job) + ".v" + std::to_string(listed.image.version) + " ";
    return text;
  }
  std::vector<ListedImage> listed_ = {image(1, 1, 0), image(2, 1, 7000), image(2, 2, 7000),
                                      image(3, 1, 2000)};
  RetentionLimits limits_;
};

TEST_F(RetentionTest, ImagesOfEndedJobsExpire) {
  limits_.max_images = 100;
  limits_.max_age_ms = 5000;
  EXPECT_EQ(collected(), "j3.v1 ");
  limits_.max_age_ms = 3000;
  EXPECT_EQ(collected(), "j3.v1 j2.v1 j2.v2 ");
}

TEST_F(RetentionTest, SurplusImagesOfTheEarliestEndedJobsAreRemoved) {
  limits_.max_age_ms = 100'000;
  limits_.max_images = 1;
  EXPECT_EQ(collected(), "j3.v1 j2.v1 ");
}

TEST_F(CatalogTest, EndTimeOfAForgottenJobIsKept) {
  catalog_->apply("a", contents("", {row(1, 100)}));
  catalog_->note_ends([](JobId) { return 500; });
  reopen();
  catalog_->note_ends([](JobId) { return std::nullopt; });
  catalog_->apply("a", contents("", {row(1, 100)}));
  EXPECT_EQ(catalog_->list().at(0).job_ended_ms, 500);
  catalog_->note_ends([](JobId) { return 0; });
  EXPECT_EQ(catalog_->list().at(0).job_ended_ms, 0);
}

TEST_F(CatalogTest, DamagedImagesAreSkippedAndReportedOnce) {
  catalog_->apply("a", contents("", {row(1, 100), row(2, 200)}));
  const auto damaged = catalog_->apply("a", contents("", {row(1, 100), row(2, 200, true)}));
  ASSERT_EQ(damaged.size(), 1U);
  EXPECT_EQ(image_text(damaged[0]), "j3.v2@a");
  EXPECT_TRUE(catalog_->apply("a", contents("", {row(1, 100), row(2, 200, true)})).empty());
  EXPECT_EQ(newest(), "j3.v1@a");
}

TEST_F(CatalogTest, CatalogSurvivesARestartWithItsPauses) {
  wire::SnapshotReport report;
  report.image_job = catalog_->image_job_of(job_);
  report.version = 1;
  report.pause_ns = 77;
  catalog_->measured("a", report);  // before the list that contains the version
  catalog_->apply("a", contents("", {row(1, 100)}));
  reopen();
  ASSERT_EQ(catalog_->list().size(), 1U);
  EXPECT_EQ(catalog_->list()[0].pause_ns, 77);
  EXPECT_EQ(catalog_->last_version("a", "", catalog_->image_job_of(job_)), 1U);
}

TEST_F(CatalogTest, NextListKeepsTheMeasuredPauseOfAnImage) {
  wire::SnapshotReport report;
  report.image_job = catalog_->image_job_of(job_);
  report.version = 1;
  report.pause_ns = 77;
  catalog_->apply("a", contents("", {row(1, 100)}));
  catalog_->measured("a", report);  // after the list that contains the version
  catalog_->apply("a", contents("", {row(1, 100), row(2, 200)}));
  EXPECT_EQ(catalog_->list().at(0).pause_ns, 77);
  EXPECT_LT(catalog_->list().at(1).pause_ns, 0);
}

TEST_F(CatalogTest, PauseOfAnImageInASharedFolderIsInTheListOfEachNode) {
  wire::SnapshotReport report;
  report.image_job = catalog_->image_job_of(job_);
  report.version = 1;
  report.folder = "/vault";
  report.pause_ns = 77;
  catalog_->apply("a", contents("/vault", {row(1, 100)}));
  catalog_->measured("a", report);
  catalog_->apply("b", contents("/vault", {row(1, 100), row(2, 200)}));
  ASSERT_EQ(catalog_->list().size(), 2U);
  EXPECT_EQ(catalog_->list()[0].pause_ns, 77);
  EXPECT_LT(catalog_->list()[1].pause_ns, 0);
}

TEST_F(CatalogTest, DamageAndGpuModelSurviveARestart) {
  auto of_model = row(1, 100);
  of_model.gpu_model = "H200";
  catalog_->apply("a", contents("", {of_model, row(2, 200, true)}));
  reopen();
  EXPECT_EQ(newest(), "j3.v1@a");
  EXPECT_EQ(catalog_->list().at(0).image.gpu_model, "H200");
  EXPECT_TRUE(catalog_->list().at(1).damaged);
  EXPECT_FALSE(catalog_->is_whole_at("a", catalog_->list().at(1).image));
}

TEST_F(CatalogTest, LastVersionIsTheHighestInAnyOrder) {
  catalog_->apply("a", contents("", {row(7, 700), row(2, 200)}));
  EXPECT_EQ(catalog_->last_version("a", "", catalog_->image_job_of(job_)), 7U);
  EXPECT_EQ(catalog_->last_version("a", "", "another"), 0U);
  EXPECT_EQ(catalog_->last_version("b", "", catalog_->image_job_of(job_)), 0U);
}

// A removal also changes the list where the newer list is of the node whose name sorts first.
TEST_F(CatalogTest, RemovalFromASharedFolderChangesTheListsOfAllNodes) {
  const std::string name = catalog_->image_job_of(job_);
  catalog_->apply("a", contents("/vault", {row(1, 100)}));
  catalog_->apply("b", contents("/vault", {row(1, 100)}));
  catalog_->apply("b", contents("/vault", {}));
  catalog_->removed("b", "/vault", name);
  EXPECT_TRUE(catalog_->list().empty());
  reopen();
  EXPECT_TRUE(catalog_->list().empty());
}

TEST_F(CatalogTest, RemovalFromANodeCheckpointStoreDoesNotAffectOtherCheckpointStores) {
  catalog_->apply("a", contents("", {row(1, 100)}));
  catalog_->apply("b", contents("", {row(1, 200)}));
  catalog_->removed("b", "", catalog_->image_job_of(job_));
  EXPECT_EQ(newest([](const Image& image) { return image.node == "a"; }), "j3.v1@a");
}

TEST_F(CatalogTest, RowWithoutAVersionIsIgnored) {
  catalog_->apply("a", contents("", {row(0, 100)}));
  EXPECT_TRUE(catalog_->list().empty());
}

TEST_F(CatalogTest, JobsOfOtherClustersInASharedFolderAreIgnored) {
  wire::ImageRow foreign = row(9, 900);
  foreign.image_job = "train.j3.00000000";
  catalog_->apply("a", contents("/vault", {foreign, row(1, 100)}));
  EXPECT_EQ(newest(), "j3.v1@/vault");
}

TEST_F(CatalogTest, NewestListOfASharedFolderIsUsed) {
  catalog_->apply("a", contents("/vault", {row(1, 100)}));
  catalog_->apply("b", contents("/vault", {row(1, 100), row(2, 200)}));
  ASSERT_EQ(catalog_->list().size(), 2U);
  EXPECT_TRUE(catalog_->is_whole_at("b", catalog_->list()[1].image));
  EXPECT_FALSE(catalog_->is_whole_at("a", catalog_->list()[1].image));
}

TEST_F(CatalogTest, AmbiguousImageIdIsRefused) {
  catalog_->apply("a", contents("", {row(1, 100)}));
  catalog_->apply("b", contents("", {row(1, 200), row(2, 300)}));
  const auto find = [&](const char* text) { return catalog_->find(*parse_image_id(text)); };
  EXPECT_EQ(find("j3.v1@b").value().image.node, "b");
  EXPECT_EQ(find("j3.v2").value().image.node, "b");
  ASSERT_FALSE(find("j3.v1"));
  EXPECT_EQ(find("j3.v1").error().code(), ErrorCode::kRefused);
  EXPECT_EQ(find("j3.v7").error().code(), ErrorCode::kNotFound);
  for (const char* wrong : {"", "j3", "j3.v", "j3.v0", "j3.v1@", "3.v1", "j3.v1x", "j.v1"})
    EXPECT_FALSE(parse_image_id(wrong)) << wrong;
}

}  // namespace
}  // namespace ckpt::coordinator
