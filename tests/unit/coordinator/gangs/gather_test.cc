// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace ckpt::coordinator {
namespace {

// A rank as keepers and ckpt_barrier implement it: an order and a count are separate steps.
struct Rank {
  std::uint64_t stop_at = 0;
  std::uint64_t count = 0;
  bool is_passing = false;  // true if the rank has counted this barrier, and has read `stop_at` before its
                            // order arrived
  bool is_held = false;
};

class World {
 public:
  World(std::size_t ranks, std::uint64_t seed, std::uint64_t skew)
      : ranks_(ranks), gather_(ranks), random_(seed), skew_(skew) {
    for (Rank& rank : ranks_) rank.count = 10 + random_() % (skew_ + 1);
  }

  // Runs until all ranks have stopped at the agreed barrier. Returns false if they never stop.
  bool run() {
    for (int step = 0; step < 100'000; ++step) {
      if (gather_.is_agreed() && std::all_of(ranks_.begin(), ranks_.end(), [this](const Rank& rank) {
            return rank.is_held && rank.count == gather_.barrier();
          }))
        return true;
      if (random_() % 3 == 0)
        order(random_() % ranks_.size());
      else
        compute(random_() % ranks_.size());
    }
    return false;
  }

  [[nodiscard]] std::string text() const {
    std::string out = "agreed on " + std::to_string(gather_.barrier()) + ", counts";
    for (const Rank& rank : ranks_) out += " " + std::to_string(rank.count);
    return out;
  }
  [[nodiscard]] std::size_t orders() const { return orders_; }

 private:
  void order(std::size_t at) {
    if (gather_.is_agreed() || !gather_.needs_order(at)) return;
    ++orders_;
    Rank& rank = ranks_[at];
    rank.stop_at = std::max(rank.stop_at, gather_.barrier());
    gather_.counted(at, rank.stop_at, rank.count);
  }

  void compute(std::size_t at) {
    Rank& rank = ranks_[at];
    if (rank.is_held && rank.count >= rank.stop_at) return;
    rank.is_held = false;
    if (rank.is_passing) {
      rank.is_passing = false;
      return;
    }
    // Each step has a collective, so no rank is more than `skew` steps ahead.
    const auto min_count = std::min_element(ranks_.begin(), ranks_.end(), [](const Rank& a, const Rank& b) {
                             return a.count < b.count;
                           })->count;
    if (rank.count >= min_count + skew_) return;
    const bool sees_order = rank.stop_at != 0 && random_() % 2 == 0;
    ++rank.count;
    const bool stops = rank.stop_at != 0 && rank.count >= rank.stop_at;
    rank.is_held = stops;
    if (!stops && !sees_order) rank.is_passing = true;
  }

  std::vector<Rank> ranks_;
  Gather gather_;
  std::mt19937_64 random_;
  std::uint64_t skew_;
  std::size_t orders_ = 0;
};

TEST(Gather, RanksWithEqualBarrierCountsAgreeAfterTwoRounds) {
  Gather gather(2);
  EXPECT_EQ(gather.barrier(), 1u);
  gather.counted(0, 1, 40);
  EXPECT_EQ(gather.barrier(), 41u);
  gather.counted(1, 1, 40);  // the answer to the previous order
  EXPECT_TRUE(gather.needs_order(1));
  gather.counted(0, 41, 40);
  gather.counted(1, 41, 40);
  EXPECT_TRUE(gather.is_agreed());
  EXPECT_EQ(gather.barrier(), 41u);
}

TEST(Gather, RankBeyondTheBarrierRaisesTheBarrierForAllRanks) {
  Gather gather(2);
  gather.counted(0, 1, 40);
  gather.counted(0, 41, 40);
  EXPECT_FALSE(gather.needs_order(0));
  gather.counted(1, 41, 41);  // the rank may have passed barrier 41 before it read the order
  EXPECT_EQ(gather.barrier(), 42u);
  EXPECT_TRUE(gather.needs_order(0));
  gather.counted(1, 42, 41);
  gather.counted(0, 42, 41);
  EXPECT_TRUE(gather.is_agreed());
}

TEST(Gather, RanksUnderAnySkewStopAtTheSameBarrier) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    World world(1 + seed % 5, seed, 1 + seed % 3);
    ASSERT_TRUE(world.run()) << "seed " << seed << ": " << world.text();
    EXPECT_LE(world.orders(), 60u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ckpt::coordinator
