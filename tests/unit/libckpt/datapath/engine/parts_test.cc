// SPDX-License-Identifier: Apache-2.0
// Tests of the engine's parts that need no device: rate limiter, queue and lane messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "libckpt/datapath/engine/shared/lane_messages.h"
#include "libckpt/datapath/engine/shared/work_pool.h"
#include "libckpt/datapath/engine/source/chunk_queue.h"
#include "libckpt/datapath/engine/source/policy/encoding_trial.h"
#include "libckpt/datapath/engine/source/policy/rate_limiter.h"

namespace ckpt::engine {
namespace {

constexpr Nanos kSecond = 1'000'000'000;

TEST(RateLimiter, LimiterSpacesMessagesExactly) {
  RateLimiter limiter(1'000'000'000);
  Nanos now = kSecond;
  for (Nanos left = RateLimiter::kCatchUp; left >= 0; left -= 1000)  // the burst after an idle time
    ASSERT_EQ(limiter.admit(1000, now), now);
  EXPECT_EQ(limiter.admit(1000, now), now + 1000) << "it is used up";
  EXPECT_EQ(limiter.admit(500, now), now + 1000) << "asking books nothing";
  now += 1000;
  EXPECT_EQ(limiter.admit(500, now), now);
  EXPECT_EQ(limiter.admit(1, now), now + 500);
}

TEST(RateLimiter, RateCanBeUnlimitedAndChangedWhileRunning) {
  RateLimiter limiter;
  EXPECT_EQ(limiter.admit(1 << 30, kSecond), kSecond);
  limiter.set_rate(1000);
  EXPECT_EQ(limiter.admit(10, kSecond), kSecond) << "10 ms";
  EXPECT_EQ(limiter.admit(10, kSecond), kSecond + 5'000'000) << "10 ms less what may be caught up";
  limiter.set_rate(0);
  EXPECT_EQ(limiter.admit(10, kSecond), kSecond);
}

TEST(RateLimiter, LanesShareOneRateLimit) {
  RateLimiter limiter(1'000'000'000);
  std::atomic<std::uint64_t> admitted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (Nanos now = kSecond; now < kSecond + 1'000'000; now += 25)
        if (limiter.admit(100, now) == now) admitted.fetch_add(100);
    });
  for (auto& t : threads) t.join();
  const std::uint64_t limit = 1'000'000 + RateLimiter::kCatchUp + 100;
  EXPECT_LE(admitted.load(), limit);
}

// Simulates lanes with messages of any size on a simulated clock. Each lane requests its turn at the given
// time or later.
TEST(RateLimiter, AdmittedBytesMatchTheRateOverAnyInterval) {
  std::mt19937_64 random(11);
  for (int run = 0; run < 40; ++run) {
    const std::uint64_t rate = std::uint64_t{1} << (20 + random() % 16);
    const std::uint64_t largest = std::max<std::uint64_t>(rate / 100, 65536);
    RateLimiter limiter(rate);
    struct Lane {
      Nanos at;
      std::uint64_t bytes;
    };
    std::vector<Lane> lanes(1 + random() % 4);
    for (Lane& lane : lanes) lane = {kSecond, 1 + random() % largest};
    std::vector<std::pair<Nanos, std::uint64_t>> left;
    while (left.size() < 3000) {
      Lane& lane = *std::min_element(lanes.begin(), lanes.end(),
                                     [](const Lane& a, const Lane& b) { return a.at < b.at; });
      const Nanos at = limiter.admit(lane.bytes, lane.at);
      if (at > lane.at) {
        lane.at = at + static_cast<Nanos>(random() % (RateLimiter::kCatchUp / 2));
        continue;
      }
      left.emplace_back(lane.at, lane.bytes);
      lane.bytes = 1 + random() % largest;
    }
    const double burst =
        static_cast<double>(rate) * RateLimiter::kCatchUp * 1e-9 + static_cast<double>(largest);
    for (int span = 0; span < 300; ++span) {
      const std::size_t from = random() % (left.size() - 1);
      const std::size_t to = from + 1 + random() % (left.size() - from - 1);
      std::uint64_t bytes = 0;
      for (std::size_t i = from; i < to; ++i) bytes += left[i].second;
      const double allowed =
          static_cast<double>(rate) * static_cast<double>(left[to].first - left[from].first) * 1e-9;
      ASSERT_LE(static_cast<double>(bytes), allowed * 1.01 + burst);
      ASSERT_GE(static_cast<double>(bytes), allowed * 0.99 - burst) << "lateness was not made up";
    }
  }
}

TEST(RateLimiter, MessagesAreShortOnASlowLink) {
  RateLimiter limiter;
  EXPECT_EQ(limiter.message_bytes(64, 1024), 1024u);
  limiter.set_rate(1000);
  EXPECT_EQ(limiter.message_bytes(64, 1024), 64u);
  limiter.set_rate(500'000);
  EXPECT_EQ(limiter.message_bytes(64, 1024), 500u);
  limiter.set_rate(5'000'000);
  EXPECT_EQ(limiter.message_bytes(64, 1024), 1024u);
}

// Simulates a move. `with` and `without` are the rates of plain bytes in bytes per second with and without
// the encoding. Returns the share of steps that used the faster way.
double share_of_better(double with, double without, std::uint64_t link) {
  EncodingTrial trial;
  constexpr std::uint64_t kMiB = 1 << 20;
  std::uint64_t better = 0;
  constexpr std::uint64_t kSteps = 4096;
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    better += trial.on() == (with > without) ? 1 : 0;
    const double rate = trial.on() ? with : without;
    trial.observe(4 * kMiB, static_cast<Nanos>(4.0 * kMiB * 1e9 / rate), link);
  }
  return static_cast<double>(better) / kSteps;
}

TEST(EncodingTrial, FasterEncodingIsKept) {
  EXPECT_EQ(share_of_better(1.2e9, 1.0e9, 1'000'000'000), 1.0) << "beats the link: no trial";
  EXPECT_GT(share_of_better(0.8e9, 1.0e9, 1'000'000'000), 0.94);
  EXPECT_GT(share_of_better(0.9e9, 0.8e9, 2'000'000'000), 0.94) << "below the link, but raw is no better";
  EXPECT_GT(share_of_better(0.9e9, 0.8e9, 0), 0.94);
}

TEST(EncodingTrial, TrialAdaptsToChangingRates) {
  EncodingTrial trial;
  const auto share_on = [&](double with, double without) {
    constexpr int kSteps = 4000;
    int on = 0;
    for (int i = 0; i < kSteps; ++i) {
      on += trial.on() ? 1 : 0;
      trial.observe(4 << 20, static_cast<Nanos>(4.0 * (1 << 20) * 1e9 / (trial.on() ? with : without)),
                    2'000'000'000);
    }
    return static_cast<double>(on) / kSteps;
  };
  EXPECT_LT(share_on(0.8e9, 1.0e9), 0.1);
  EXPECT_GT(share_on(1.2e9, 1.0e9), 0.8);
  EXPECT_LT(share_on(0.8e9, 1.0e9), 0.2);
}

class CountingWork : public WorkHandler {
 public:
  void work(std::size_t item, std::size_t) override {
    sum.fetch_add(item);
    count.fetch_add(1);
  }
  std::atomic<std::uint64_t> sum{0};
  std::atomic<std::uint64_t> count{0};
};

TEST(WorkQueue, EveryPieceIsTakenOnceAndTheQueueIsBounded) {
  WorkQueue queue(4);
  CountingWork handler;
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(queue.push({&handler, i}));
  EXPECT_FALSE(queue.push({&handler, 4}));
  WorkQueue::Work work;
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(queue.pop(work));
    EXPECT_EQ(work.item, i);
  }
  EXPECT_FALSE(queue.pop(work));

  constexpr std::size_t kEach = 20000;
  std::vector<std::thread> threads;
  std::atomic<std::size_t> taken{0};
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = 1; i <= kEach;)
        if (queue.push({&handler, i}))
          ++i;
        else
          std::this_thread::yield();
    });
    threads.emplace_back([&] {
      WorkQueue::Work mine;
      while (taken.load() < 2 * kEach)
        if (queue.pop(mine)) {
          taken.fetch_add(1);
          mine.handler->work(mine.item, 0);
        } else {
          std::this_thread::yield();
        }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(handler.count.load(), 2 * kEach);
  EXPECT_EQ(handler.sum.load(), kEach * (kEach + 1));
}

TEST(ChunkQueue, QueueKeepsOrderAndBoundBetweenThreads) {
  ChunkQueue<std::uint32_t> queue(8);
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_TRUE(queue.push(i));
  EXPECT_FALSE(queue.push(8));
  for (std::uint32_t i = 0; i < 8; ++i, queue.pop()) EXPECT_EQ(*queue.front(), i);
  EXPECT_EQ(queue.front(), nullptr);

  constexpr std::uint32_t kCount = 20000;
  std::thread producer([&] {
    for (std::uint32_t i = 0; i < kCount;)
      if (queue.push(i))
        ++i;
      else
        std::this_thread::yield();
  });
  for (std::uint32_t i = 0; i < kCount;) {
    const std::uint32_t* next = queue.front();
    if (next == nullptr) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(*next, i++);
    queue.pop();
  }
  producer.join();
}

const SessionIdentity kId{7, 3, 0};

TEST(LaneMessages, MessagesAreParsedAsWritten) {
  LaneBuffer buffer(LaneMessage::kChunks, kId, 5);
  buffer.set_slot(2, 99);
  for (std::uint32_t i = 0; i < kMaxChunks; ++i) {
    ChunkRecord record;
    record.region = 10 + i;
    record.chunk = i;
    buffer.append(record);
  }
  const auto bytes = buffer.bytes();
  auto header = parse_lane_header(bytes, kId);
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header.value().count, kMaxChunks);
  EXPECT_EQ(header.value().round, 5u);
  EXPECT_EQ(header.value().sequence, 99u);
  EXPECT_EQ(record_at<ChunkRecord>(bytes, 23).region, 33u);
}

TEST(LaneMessages, AnotherMigrationOrIncarnationIsRefused) {
  LaneBuffer buffer(LaneMessage::kFinal, kId, 5);
  EXPECT_TRUE(parse_lane_header(buffer.bytes(), kId).has_value());
  for (const SessionIdentity& other :
       {SessionIdentity{8, 3, 0}, SessionIdentity{7, 4, 0}, SessionIdentity{7, 3, 1}}) {
    auto header = parse_lane_header(buffer.bytes(), other);
    ASSERT_FALSE(header.has_value());
    EXPECT_EQ(header.error().code(), ErrorCode::kProtocol);
  }
}

TEST(LaneMessages, TextIsBoundedAndPrintable) {
  LaneBuffer buffer(LaneMessage::kVerdict, kId, 1);
  buffer.append(VerdictRecord{});
  buffer.append_text("bad\x01" + std::string(2000, 'x'));
  const auto bytes = buffer.bytes();
  auto header = parse_lane_header(bytes, kId);
  ASSERT_TRUE(header.has_value());
  const std::string text = text_of(bytes, header.value());
  EXPECT_EQ(text.size(), kMaxTextBytes);
  EXPECT_EQ(text.substr(0, 4), "bad?");
}

TEST(LaneMessages, DamagedMessagesNeverPassWithAWrongLength) {
  std::mt19937 random(1);
  LaneBuffer buffer(LaneMessage::kAck, kId, 5);
  for (int i = 0; i < 3; ++i) buffer.append(AckRecord{});
  const auto good = buffer.bytes();
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes(good.begin(), good.end());
    bytes.resize(random() % (bytes.size() + 64));
    for (int flips = 0; flips < 2 && !bytes.empty(); ++flips)
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << (random() % 8));
    auto header = parse_lane_header(bytes, kId);
    if (!header) continue;
    if (header.value().type == LaneMessage::kAck) {
      ASSERT_EQ(bytes.size(), sizeof(LaneHeader) + header.value().count * sizeof(AckRecord));
    }
    ASSERT_LE(bytes.size(), kMaxLaneHeaderBytes);
  }
}

}  // namespace
}  // namespace ckpt::engine
