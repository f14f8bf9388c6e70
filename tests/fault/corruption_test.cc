// SPDX-License-Identifier: Apache-2.0
// Tests with one flipped byte wherever data passes. The damage is found, the data is sent again, and the
// damage is reported. At the third time the session ends.
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/libckpt/datapath/engine/engine_pair.h"

namespace ckpt::engine {
namespace {

using test::EnginePair;
using test::kKiB;
using test::kMiB;
using test::must;

enum class Place { kStaging, kLink, kTargetMemory };

class Flip : public FaultHooks {
 public:
  Flip(Place place, int times) : place_(place), left_(times) {}
  void on_staged(const ChunkId& id, std::span<std::byte> bytes) override {
    if (place_ == Place::kStaging && take(id)) bytes[bytes.size() / 2] ^= std::byte{1};
  }
  void on_received(const ChunkId& id, std::span<std::byte> bytes) override {
    if (place_ == Place::kLink && take(id)) bytes[0] ^= std::byte{0x80};
  }
  void on_scattered(const ChunkId& id, CUdeviceptr address, std::uint64_t bytes) override {
    if (place_ != Place::kTargetMemory || !take(id)) return;
    const DriverApi& api = test::device(1).api();
    std::byte byte{};
    ASSERT_EQ(api.cuMemcpyDtoH_v2(&byte, address + bytes - 1, 1), CUDA_SUCCESS);
    byte ^= std::byte{4};
    ASSERT_EQ(api.cuMemcpyHtoD_v2(address + bytes - 1, &byte, 1), CUDA_SUCCESS);
  }

 private:
  bool take(const ChunkId& id) { return id.chunk == 11 && left_.fetch_sub(1) > 0; }
  Place place_;
  std::atomic<int> left_;
};

class Corruption : public testing::TestWithParam<std::tuple<Place, bool>> {
 protected:
  static Place place() { return std::get<Place>(GetParam()); }
  static EnginePair::Setup setup(Flip& flip) {
    EnginePair::Setup setup;
    setup.sizes = {4 * kMiB};
    setup.same_host = std::get<bool>(GetParam());
    (place() == Place::kStaging ? setup.source_hooks : setup.target_hooks) = &flip;
    return setup;
  }
};

TEST_P(Corruption, OneOrTwoCorruptionsAreRepairedAndReported) {
  for (int times = 1; times <= 2; ++times) {
    Flip flip(place(), times);
    EnginePair pair(setup(flip));
    pair.announce();
    pair.source().write(0, test::random_bytes(4 * kMiB, 1));
    must(pair.sender().run_round());
    EXPECT_EQ(pair.differences(), 0u);
    EXPECT_EQ(pair.mismatches(), static_cast<std::uint32_t>(times));
    EXPECT_EQ(pair.sender().progress().resent_chunks, static_cast<std::uint64_t>(times));
    pair.switch_over();
    EXPECT_EQ(pair.differences(), 0u);
  }
}

TEST_P(Corruption, CorruptionInTheFinalRoundIsRepaired) {
  Flip flip(place(), 1);
  EnginePair pair(setup(flip));
  pair.announce();
  pair.source().write(0, test::random_bytes(4 * kMiB, 1));
  pair.switch_over();
  EXPECT_EQ(pair.mismatches(), 1u);
  EXPECT_EQ(pair.differences(), 0u);
}

TEST_P(Corruption, TheThirdCorruptionAbortsBothSides) {
  Flip flip(place(), 3);
  EnginePair pair(setup(flip));
  pair.announce();
  pair.source().write(0, test::random_bytes(4 * kMiB, 1));
  auto round = pair.sender().run_round();
  ASSERT_FALSE(round.has_value());
  EXPECT_EQ(round.error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(pair.mismatches(), 3u);
  EXPECT_NE(pair.wait_failed().to_string().find("arrived wrong 3 times"), std::string::npos);
}

const char* name_of(Place place) {
  switch (place) {
    case Place::kStaging:
      return "staging";
    case Place::kLink:
      return "link";
    default:
      return "target_memory";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Places, Corruption,
    testing::Combine(testing::Values(Place::kStaging, Place::kLink, Place::kTargetMemory), testing::Bool()),
    [](const auto& info) {
      return std::string(name_of(std::get<Place>(info.param))) + (std::get<bool>(info.param) ? "_near" : "");
    });

// An encoding against a version that the target has overwritten. It is detected, and the chunk is sent raw.
struct Stale {
  const char* name;
  codec::CodecMode codec;
  std::uint64_t changed_bytes;  // the bytes that change at the source in the chunk
};

class StaleVersion : public testing::TestWithParam<Stale> {};

TEST_P(StaleVersion, AStaleVersionIsDetectedAndTheChunkIsSentRaw) {
  EnginePair pair({.sizes = {1 * kMiB}, .codec = GetParam().codec, .shadow_memory = 1 * kMiB});
  pair.announce();
  pair.source().write(0, test::random_floats(1 * kMiB, 1));
  must(pair.sender().run_round());
  pair.target().fill(5 * 64 * kKiB + 60'000, 1, 0x5A);  // changes the target's memory without notifying the
                                                        // engine
  pair.source().fill(5 * 64 * kKiB, GetParam().changed_bytes, 0);
  const RoundReport report = must(pair.sender().run_round());
  EXPECT_EQ(report.dirty_bytes, 64 * kKiB);
  EXPECT_EQ(pair.mismatches(), 1u);
  EXPECT_EQ(pair.sender().progress().resent_chunks, 1u);
  EXPECT_GT(report.wire_bytes, 64 * kKiB) << "the second time raw";
  EXPECT_EQ(pair.differences(), 0u);
  pair.switch_over();
  EXPECT_EQ(pair.differences(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Encodings, StaleVersion,
                         testing::Values(Stale{"blocks", codec::CodecMode::kAuto, 1},
                                         Stale{"difference", codec::CodecMode::kDifference, 30'000}),
                         [](const auto& info) { return info.param.name; });

// Hooks that damage a byte of an encoded chunk on the link. The damaged chunk decodes to other content, or
// not at all.
class FlipEncoded : public FaultHooks {
 public:
  std::atomic<std::size_t> at{0};
  std::atomic<bool> armed{false};
  void on_received(const ChunkId& id, std::span<std::byte> bytes) override {
    if (id.chunk == 11 && armed.exchange(false)) bytes[at.load() % bytes.size()] ^= std::byte{0x11};
  }
};

TEST(CorruptEncoding, ACorruptEncodingIsRepairedAtAnyPosition) {
  for (const codec::CodecMode mode : {codec::CodecMode::kPlanes, codec::CodecMode::kDifference}) {
    FlipEncoded flip;
    EnginePair pair({.sizes = {2 * kMiB},
                     .target_hooks = &flip,
                     .codec = mode,
                     .shadow_memory = 2 * kMiB,
                     .same_host = mode == codec::CodecMode::kPlanes});
    pair.announce();
    pair.source().write(0, test::random_floats(2 * kMiB, 1));
    must(pair.sender().run_round());
    std::mt19937 random(3);
    for (std::uint32_t i = 1; i <= 2; ++i) {
      pair.source().write(11 * 64 * kKiB, test::random_floats(64 * kKiB, 10 + i));
      flip.at.store(i == 1 ? 0 : random());
      flip.armed.store(true);
      must(pair.sender().run_round());
      EXPECT_FALSE(flip.armed.load());
      EXPECT_EQ(pair.mismatches(), i);
      EXPECT_EQ(pair.differences(), 0u);
    }
    pair.switch_over();
    EXPECT_EQ(pair.differences(), 0u);
  }
}

}  // namespace
}  // namespace ckpt::engine
