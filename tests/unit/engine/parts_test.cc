// SPDX-License-Identifier: Apache-2.0
// The engine's parts that need no device: rate limiter, queue, lane messages.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "libckpt/engine/chunk_queue.h"
#include "libckpt/engine/lane_messages.h"
#include "libckpt/engine/rate_limiter.h"

namespace ckpt::engine {
namespace {

TEST(RateLimiter, spaces_messages_exactly) {
  RateLimiter limiter(1'000'000'000);
  EXPECT_EQ(limiter.reserve(1000, 5000), 5000);
  EXPECT_EQ(limiter.reserve(1000, 5000), 6000);
  EXPECT_EQ(limiter.reserve(500, 5500), 7000);
  EXPECT_EQ(limiter.reserve(1, 9000), 9000) << "no credit is saved up while idle";
}

TEST(RateLimiter, unlimited_and_changed_while_running) {
  RateLimiter limiter;
  EXPECT_EQ(limiter.reserve(1 << 30, 77), 77);
  limiter.set_rate(1000);
  EXPECT_EQ(limiter.reserve(10, 100), 100);
  EXPECT_EQ(limiter.reserve(10, 100), 100 + 10'000'000);
  limiter.set_rate(0);
  EXPECT_EQ(limiter.reserve(10, 200), 200);
}

TEST(RateLimiter, lanes_share_one_line) {
  RateLimiter limiter(1'000'000'000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) (void)limiter.reserve(100, 0);
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(limiter.reserve(1, 0), 400'000);
}

TEST(ChunkQueue, keeps_order_and_bound_between_threads) {
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

TEST(LaneMessages, round_trip) {
  LaneBuffer buffer(LaneMessage::kChunks, kId, 5);
  buffer.set_slot(2, 99);
  for (std::uint32_t i = 0; i < kMostChunks; ++i) {
    ChunkRecord record;
    record.region = 10 + i;
    record.chunk = i;
    buffer.append(record);
  }
  const auto bytes = buffer.bytes();
  auto header = parse_lane_header(bytes, kId);
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header.value().count, kMostChunks);
  EXPECT_EQ(header.value().round, 5u);
  EXPECT_EQ(header.value().sequence, 99u);
  EXPECT_EQ(record_at<ChunkRecord>(bytes, 23).region, 33u);
}

TEST(LaneMessages, another_migration_or_incarnation_is_refused) {
  LaneBuffer buffer(LaneMessage::kFinal, kId, 5);
  EXPECT_TRUE(parse_lane_header(buffer.bytes(), kId).has_value());
  for (const SessionIdentity& other :
       {SessionIdentity{8, 3, 0}, SessionIdentity{7, 4, 0}, SessionIdentity{7, 3, 1}}) {
    auto header = parse_lane_header(buffer.bytes(), other);
    ASSERT_FALSE(header.has_value());
    EXPECT_EQ(header.assume_error().code(), ErrorCode::kProtocol);
  }
}

TEST(LaneMessages, text_is_bounded_and_printable) {
  LaneBuffer buffer(LaneMessage::kVerdict, kId, 1);
  buffer.append(VerdictRecord{});
  buffer.append_text("bad\x01" + std::string(2000, 'x'));
  const auto bytes = buffer.bytes();
  auto header = parse_lane_header(bytes, kId);
  ASSERT_TRUE(header.has_value());
  const std::string text = text_of(bytes, header.value());
  EXPECT_EQ(text.size(), kMostTextBytes);
  EXPECT_EQ(text.substr(0, 4), "bad?");
}

TEST(LaneMessages, damaged_bytes_never_pass_with_a_wrong_length) {
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
    ASSERT_LE(bytes.size(), kMostLaneHeaderBytes);
  }
}

}  // namespace
}  // namespace ckpt::engine
