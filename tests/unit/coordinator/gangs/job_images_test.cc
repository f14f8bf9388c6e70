// SPDX-License-Identifier: Apache-2.0
// Tests of the plans that JobImages shows for jobs of one rank and of several. protections_test.cc has the
// tests of its orders, with nodes.
#include "coordinator/gangs/job_images.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

Image image_of(JobId job, std::int64_t barrier_ms) {
  Image image;
  image.node = "a";
  image.job = job;
  image.version = 3;
  image.barrier_ms = barrier_ms;
  return image;
}

TEST(JobRestorePlan, OneRankHasOneImageAndOnePlace) {
  RestorePlan plan;
  plan.image = image_of(1, 700);
  plan.place = Place("b", 2);
  plan.runs = true;
  plan.lost_ms = 50;
  plan.obstacle = "it runs";
  const JobRestorePlan shown = job_restore_plan(plan);
  ASSERT_EQ(shown.images.size(), 1U);
  EXPECT_EQ(image_text(shown.images.front()), image_text(plan.image));
  EXPECT_EQ(shown.places, std::vector<Place>{Place("b", 2)});
  EXPECT_EQ(shown.to, "b:2");
  EXPECT_EQ(shown.barrier_ms, 700);
  EXPECT_TRUE(shown.runs);
  EXPECT_EQ(shown.lost_ms, 50);
  EXPECT_EQ(shown.obstacle, "it runs");
}

TEST(JobRestorePlan, RanksHaveTheImagesOfTheirSetAndTheirPlaces) {
  GangRestorePlan plan;
  plan.set.images = {image_of(4, 710), image_of(5, 700)};
  plan.set.barrier_ms = 700;
  plan.places = {Place("b", 0), Place("c", 1)};
  plan.lost_ms = 60;
  const JobRestorePlan shown = job_restore_plan(plan);
  EXPECT_EQ(shown.images.size(), 2U);
  EXPECT_EQ(shown.places, plan.places);
  EXPECT_EQ(shown.to, "b 1 rank, c 1 rank");
  EXPECT_EQ(shown.barrier_ms, 700);
  EXPECT_FALSE(shown.runs);
  EXPECT_EQ(shown.lost_ms, 60);
  EXPECT_EQ(shown.obstacle, "");
}

TEST(ImageFinder, ImageOfASetIsNotUsedWithoutTheOtherImages) {
  Image image = image_of(4, 700);
  EXPECT_TRUE(ImageFinder::check_is_alone(image));
  image.set = 9;
  const auto checked = ImageFinder::check_is_alone(image);
  ASSERT_FALSE(checked.has_value());
  EXPECT_EQ(checked.error().code(), ErrorCode::kRefused);
  EXPECT_NE(checked.error().to_string().find("all ranks of its job must continue together"),
            std::string::npos);
}

}  // namespace
}  // namespace ckpt::coordinator
