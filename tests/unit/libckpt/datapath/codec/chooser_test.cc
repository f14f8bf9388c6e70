// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/chooser.h"

#include <gtest/gtest.h>

namespace ckpt::codec {
namespace {

constexpr std::uint64_t kGb = 1'000'000'000;

Estimate estimate_of(double planes_ratio, double difference_ratio = 1) {
  Estimate estimate;
  if (planes_ratio > 1) {
    estimate.planes = Encoding::kPlanes4;
    estimate.planes_ratio = planes_ratio;
  }
  if (difference_ratio > 1) {
    estimate.difference = Encoding::kDifference4;
    estimate.difference_ratio = difference_ratio;
  }
  const bool difference = difference_ratio > planes_ratio;
  estimate.encoding = difference ? estimate.difference : estimate.planes;
  estimate.ratio = difference ? difference_ratio : planes_ratio;
  return estimate;
}

// Feeds the chooser enough observations of `encoding` at `rate` bytes/s that the rate counts as known.
void teach(Chooser& chooser, Encoding encoding, std::uint64_t rate) {
  for (int turn = 0; turn < 200; ++turn) chooser.observe(encoding, rate / 1000, 1'000'000);
}
// Uses up the credit for trials, so that the chooser decides only by known rates.
void use_up_trials(Chooser& chooser) {
  for (int turn = 0; turn < 64; ++turn) static_cast<void>(chooser.choose(estimate_of(9, 10)));
}

struct Case {
  const char* what;
  CodecMode mode;
  std::uint32_t threads;
  double link, planes_rate, difference_rate;  // the rates of the link and of the two encodings, in GB/s
  double planes_ratio, difference_ratio;
  Encoding expected;
};

TEST(Chooser, EncodingIsChosenByLinkRateCoresAndRatio) {
  constexpr auto kAuto = CodecMode::kAuto;
  const Case cases[] = {
      {"a slow link", kAuto, 1, 0.125, 1.7, 0, 1.24, 1, Encoding::kPlanes4},
      {"10 Gb and one core", kAuto, 1, 1.25, 1.7, 0, 1.24, 1, Encoding::kPlanes4},
      {"25 Gb and one core: coding is the brake", kAuto, 1, 3.1, 1.7, 0, 1.24, 1, Encoding::kRaw},
      {"25 Gb and three cores", kAuto, 3, 3.1, 1.7, 0, 1.24, 1, Encoding::kPlanes4},
      {"cores just faster than the link gain too little", kAuto, 1, 1.0, 1.02, 0, 1.24, 1, Encoding::kRaw},
      {"and a little more", kAuto, 1, 1.0, 1.05, 0, 1.24, 1, Encoding::kPlanes4},
      {"a ratio of two per cent", kAuto, 1, 0.125, 1.7, 0, 1.02, 1, Encoding::kRaw},
      {"a ratio of four per cent", kAuto, 1, 0.125, 1.7, 0, 1.04, 1, Encoding::kPlanes4},
      {"nothing shrinks", kAuto, 1, 0.125, 1.7, 1.5, 1, 1, Encoding::kRaw},
      {"the difference is smaller", kAuto, 1, 0.5, 1.7, 1.5, 1.24, 1.6, Encoding::kDifference4},
      {"the planes are smaller", kAuto, 1, 0.5, 1.7, 1.5, 1.24, 1.1, Encoding::kPlanes4},
      {"the difference is too slow", kAuto, 1, 1.2, 1.7, 1.0, 1.24, 1.6, Encoding::kPlanes4},
      {"the difference is slower, but wins", kAuto, 1, 1.0, 1.7, 1.4, 1.24, 1.6, Encoding::kDifference4},
      {"both are too slow", kAuto, 1, 12.5, 1.7, 1.5, 1.24, 1.6, Encoding::kRaw},
      {"no rate is known and no trial left", kAuto, 1, 0.125, 0, 0, 1.24, 1.6, Encoding::kRaw},
      {"the link is not known", kAuto, 1, 0, 1.7, 1.5, 1.24, 1.6, Encoding::kRaw},
      {"raw is forced", CodecMode::kRaw, 8, 0.125, 1.7, 1.5, 1.24, 4, Encoding::kRaw},
      {"planes are forced, though slow", CodecMode::kPlanes, 1, 50, 1.7, 1.5, 1.24, 4, Encoding::kPlanes4},
      {"planes are forced, nothing known", CodecMode::kPlanes, 1, 0, 0, 0, 1.01, 4, Encoding::kPlanes4},
      {"planes are forced, nothing shrinks", CodecMode::kPlanes, 1, 0, 0, 0, 1, 4, Encoding::kRaw},
      {"difference is forced", CodecMode::kDifference, 1, 50, 1.7, 1.5, 1.24, 1.1, Encoding::kDifference4},
      {"difference without a version", CodecMode::kDifference, 1, 50, 1.7, 1.5, 1.24, 1, Encoding::kPlanes4},
      {"difference, nothing shrinks", CodecMode::kDifference, 1, 0, 0, 0, 1, 1, Encoding::kRaw},
      {"no mode", CodecMode::kInvalid, 1, 0.125, 1.7, 1.5, 1.24, 1.6, Encoding::kRaw},
  };
  for (const Case& c : cases) {
    Chooser chooser(c.mode, c.threads);
    chooser.set_link_rate(static_cast<std::uint64_t>(c.link * kGb));
    use_up_trials(chooser);
    if (c.planes_rate > 0)
      teach(chooser, Encoding::kPlanes4, static_cast<std::uint64_t>(c.planes_rate * kGb));
    if (c.difference_rate > 0) {
      teach(chooser, Encoding::kDifference4, static_cast<std::uint64_t>(c.difference_rate * kGb));
    }
    EXPECT_EQ(chooser.choose(estimate_of(c.planes_ratio, c.difference_ratio)), c.expected) << c.what;
  }
}

TEST(Chooser, AnUnknownEncodingRateIsMeasuredByATrial) {
  Chooser chooser(CodecMode::kAuto, 1);
  EXPECT_FALSE(chooser.may_encode()) << "the link is not known";
  chooser.set_link_rate(kGb);
  EXPECT_TRUE(chooser.may_encode());
  EXPECT_EQ(chooser.choose(estimate_of(1.24)), Encoding::kPlanes4);
  chooser.observe(Encoding::kPlanes4, 65536, 32768);
  EXPECT_EQ(chooser.rate(Encoding::kPlanes4), 2 * kGb);
  for (int turn = 0; turn < 100; ++turn) EXPECT_EQ(chooser.choose(estimate_of(1.24)), Encoding::kPlanes4);
}

TEST(Chooser, TrialsAreRare) {
  // The test reports no observation: the encodings give up on every chunk.
  Chooser chooser(CodecMode::kAuto, 4);
  chooser.set_link_rate(kGb);
  int tried = 0;
  for (int turn = 0; turn < 10240; ++turn) {
    if (chooser.may_encode() && chooser.choose(estimate_of(1.24)) != Encoding::kRaw) ++tried;
  }
  EXPECT_GE(tried, 8);
  EXPECT_LE(tried, 11 * 8);
}

TEST(Chooser, AFastLinkIsRarelySampled) {
  Chooser chooser(CodecMode::kAuto, 1);
  chooser.set_link_rate(50 * kGb);
  teach(chooser, Encoding::kPlanes4, 2 * kGb);
  int sampled = 0;
  for (int turn = 0; turn < 10240; ++turn) sampled += chooser.may_encode() ? 1 : 0;
  EXPECT_GE(sampled, 9 * 8) << "never again";
  EXPECT_LE(sampled, 11 * 8);
}

TEST(Chooser, EncodingIsUsedAgainAfterItsRateIncreases) {
  Chooser chooser(CodecMode::kAuto, 1);
  chooser.set_link_rate(kGb);
  chooser.observe(Encoding::kPlanes4, kGb / 1000, 100'000'000);  // the core was busy with other work
  int used = 0;
  for (int turn = 0; turn < 8192; ++turn) {
    if (!chooser.may_encode() || chooser.choose(estimate_of(1.24)) != Encoding::kPlanes4) continue;
    ++used;
    chooser.observe(Encoding::kPlanes4, 2 * kGb / 1000, 1'000'000);
  }
  EXPECT_GT(used, 4096) << "one slow start decided for ever";
}

TEST(Chooser, SingleSlowObservationDoesNotChangeTheChoice) {
  Chooser chooser(CodecMode::kAuto, 1);
  chooser.set_link_rate(kGb);
  teach(chooser, Encoding::kPlanes4, 2 * kGb);
  chooser.observe(Encoding::kPlanes4, 65536, 1'000'000'000);
  use_up_trials(chooser);
  EXPECT_EQ(chooser.choose(estimate_of(1.24)), Encoding::kPlanes4);
  chooser.observe(Encoding::kPlanes4, 65536, 0);
  chooser.observe(Encoding::kPlanes4, 65536, -5);
  chooser.observe(Encoding::kPlanes4, 0, 10);
  EXPECT_EQ(chooser.choose(estimate_of(1.24)), Encoding::kPlanes4);
  EXPECT_LE(chooser.rate(Encoding::kPlanes4), 2 * kGb) << "a clock that stood still was believed";
}

TEST(Chooser, ObservationsOfOtherEncodingsAreIgnored) {
  Chooser chooser(CodecMode::kAuto, 1);
  for (const Encoding encoding :
       {Encoding::kInvalid, Encoding::kZero, Encoding::kRaw, Encoding::kBlocks, static_cast<Encoding>(200)}) {
    chooser.observe(encoding, 65536, 1000);
  }
  for (int value = 0; value <= static_cast<int>(Encoding::kLast); ++value) {
    EXPECT_EQ(chooser.rate(static_cast<Encoding>(value)), 0U);
  }
}

}  // namespace
}  // namespace ckpt::codec
