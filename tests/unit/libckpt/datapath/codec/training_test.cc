// SPDX-License-Identifier: Apache-2.0
// Compares compression ratios on generated memory of a training job with those measured on real training
// (phase A of float_data.h).
#include <gtest/gtest.h>

#include <string>

#include "libckpt/datapath/codec/coder.h"
#include "tools/bench/measuring/float_data.h"

namespace ckpt::codec {
namespace {

using bench::FloatClass;

struct Case {
  FloatClass kind;
  Encoding planes, difference;
  double planes_ratio, difference_ratio;  // the smallest ratios that pass
};

class TrainingTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { data_ = new bench::TrainingData(bench::make_training_data(1 << 19, {})); }
  static void TearDownTestSuite() { delete data_; }
  static const bench::TrainingData* data_;
};
const bench::TrainingData* TrainingTest::data_ = nullptr;

TEST_F(TrainingTest, SimulatedDataCompressesLikeRealTraining) {
  const Case cases[] = {
      {FloatClass::kWeights, Encoding::kPlanes4, Encoding::kDifference4, 1.15, 1.50},
      {FloatClass::kHalfWeights, Encoding::kPlanes2, Encoding::kDifference2, 1.40, 3.00},
      {FloatClass::kFirstMoment, Encoding::kPlanes4, Encoding::kDifference4, 1.15, 1.15},
      {FloatClass::kSecondMoment, Encoding::kPlanes4, Encoding::kDifference4, 1.20, 1.35},
      {FloatClass::kGradients, Encoding::kPlanes2, Encoding::kDifference2, 1.40, 1.25},
  };
  for (const std::size_t chunk_bytes : {65536UL, 1UL << 20}) {
    const auto coder = Coder::create(chunk_bytes).value();
    for (const Case& c : cases) {
      const auto now = bench::bytes_of(data_->now, c.kind), before = bench::bytes_of(data_->before, c.kind);
      std::vector<std::byte> out(chunk_bytes), back(chunk_bytes);
      const auto ratio = [&](Encoding encoding) {
        std::size_t encoded = 0;
        for (std::size_t at = 0; at + chunk_bytes <= now.size(); at += chunk_bytes) {
          const auto chunk = now.subspan(at, chunk_bytes), previous = before.subspan(at, chunk_bytes);
          const auto size = coder->encode(encoding, chunk, previous, out);
          encoded += size.value_or(chunk_bytes);
          if (!size) continue;
          const auto whole = coder->decode(encoding, std::span(out).first(*size), previous, back);
          EXPECT_TRUE(whole.has_value() && std::equal(back.begin(), back.end(), chunk.begin()));
        }
        return static_cast<double>(now.size() / chunk_bytes * chunk_bytes) / static_cast<double>(encoded);
      };
      const std::string what =
          std::string(bench::name_of(c.kind)) + ", chunks of " + std::to_string(chunk_bytes);
      EXPECT_GT(ratio(c.planes), c.planes_ratio) << what;
      EXPECT_GT(ratio(c.difference), c.difference_ratio) << what;
      const Estimate estimate = coder->estimate(now.first(chunk_bytes), before.first(chunk_bytes));
      EXPECT_EQ(estimate.planes, c.planes) << what;
      EXPECT_EQ(estimate.difference, c.difference) << what;
    }
  }
}

TEST_F(TrainingTest, GeneratedDataIsReproducibleAndChangesOverTime) {
  const bench::TrainingData a = bench::make_training_data(5000, {}), b = bench::make_training_data(5000, {});
  for (const FloatClass kind : bench::kFloatClasses) {
    const auto now = bench::bytes_of(a.now, kind), again = bench::bytes_of(b.now, kind);
    const auto before = bench::bytes_of(a.before, kind);
    EXPECT_TRUE(std::equal(now.begin(), now.end(), again.begin(), again.end()));
    EXPECT_FALSE(std::equal(now.begin(), now.end(), before.begin(), before.end()));
  }
}

}  // namespace
}  // namespace ckpt::codec
