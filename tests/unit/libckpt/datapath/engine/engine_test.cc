// SPDX-License-Identifier: Apache-2.0
// Tests of sender and receiver over loopback with real device calls. The target ends up equal to the source,
// whatever a job writes during the rounds.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>

#include "tests/unit/libckpt/datapath/engine/engine_pair.h"

namespace ckpt::engine {
namespace {

using test::EnginePair;
using test::kKiB;
using test::kMiB;
using test::must;
using test::Writer;

TEST(Engine, StopCopyMovesEveryByteAndTheHostState) {
  EnginePair pair({.sizes = {3 * kMiB + 4096, 16, 64 * kKiB}});
  pair.announce();
  for (std::uint64_t id = 1; id <= 3; ++id)
    pair.source(id).write(0, test::random_bytes(pair.source(id).bytes(), static_cast<unsigned>(id)));
  const auto host = test::random_bytes(2 * kMiB + 77, 9);
  pair.switch_over(host);
  EXPECT_EQ(pair.differences(), 0u);
  ASSERT_EQ(pair.host_state.bytes, host.size());
  void* mapped = ::mmap(nullptr, host.size(), PROT_READ, MAP_SHARED, pair.host_state.file.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(std::memcmp(mapped, host.data(), host.size()), 0);
  ::munmap(mapped, host.size());
  EXPECT_EQ(pair.report.scanned_bytes, 0u) << "all of it was fingerprinted on arrival";
  EXPECT_EQ(pair.final_report.dirty_bytes, pair.final_report.state_bytes);
}

TEST(Engine, RoundsUnderRandomWritersEndWithEqualMemory) {
  for (const std::uint64_t chunk : {64 * kKiB, 256 * kKiB, 2 * kMiB}) {
    for (unsigned seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE("chunk " + std::to_string(chunk) + " seed " + std::to_string(seed));
      std::mt19937 random(seed);
      std::vector<std::uint64_t> sizes;
      std::vector<std::uint64_t> ids;
      for (std::uint64_t i = 0; i < 1 + seed; ++i) {
        sizes.push_back(16 + random() % (3 * kMiB));
        ids.push_back(i + 1);
      }
      EnginePair pair(
          {.sizes = sizes, .chunk_bytes = chunk, .lanes = 1 + seed % 3, .same_host = seed % 2 == 0});
      pair.announce();
      Writer writer(pair, ids, seed);
      for (int round = 0; round < 4; ++round) {
        const RoundReport report = must(pair.sender().run_round());
        EXPECT_EQ(report.round, static_cast<std::uint32_t>(round + 1));
        writer.wait_for_writes(20);
      }
      writer.stop();
      pair.switch_over();
      EXPECT_EQ(pair.differences(), 0u);
      EXPECT_EQ(pair.mismatches(), 0u);
      EXPECT_GT(pair.report.scanned_bytes, 0u);
    }
  }
}

// A transport that counts the lanes that both ends open.
class CountedTransport : public transport::Transport {
 public:
  Result<std::unique_ptr<transport::Lane>> listen(const transport::SessionToken& token,
                                                  transport::LaneHandler& handler) override {
    ++listening;
    return under_->listen(token, handler);
  }
  Result<std::unique_ptr<transport::Lane>> connect(const std::string& address,
                                                   const transport::SessionToken& token,
                                                   transport::LaneHandler& handler) override {
    ++connecting;
    return under_->connect(address, token, handler);
  }
  int listening = 0;
  int connecting = 0;

 private:
  std::unique_ptr<transport::Transport> under_ = transport::make_loopback_transport();
};

TEST(Engine, LanesAreDistributedEvenlyOverSeveralPaths) {
  std::array<CountedTransport, 3> paths;
  const auto spread = transport::make_spread_transport({&paths[0], &paths[1], &paths[2]});
  EnginePair pair({.lanes = 0, .paths = 3, .transport = spread.get()});
  for (const CountedTransport& path : paths) {
    EXPECT_EQ(path.listening, 1);
    EXPECT_EQ(path.connecting, 1);
  }
  pair.announce();
  pair.source().write(0, test::random_bytes(4 * kMiB, 5));
  pair.switch_over();
  EXPECT_EQ(pair.differences(), 0u);
}

TEST(Engine, AnUnchangedChunkIsSentOnce) {
  EnginePair pair({.sizes = {4 * kMiB}});
  pair.announce();
  pair.source().write(0, test::random_bytes(4 * kMiB, 5));
  EXPECT_EQ(must(pair.sender().run_round()).dirty_bytes, 4 * kMiB);
  EXPECT_EQ(must(pair.sender().run_round()).dirty_bytes, 0u);
  pair.source().fill(100'000, 1, 0x77);
  EXPECT_EQ(must(pair.sender().run_round()).dirty_bytes, 64 * kKiB);
  pair.switch_over();
  EXPECT_EQ(pair.final_report.dirty_bytes, 0u);
  EXPECT_EQ(pair.differences(), 0u);
}

TEST(Engine, ZeroChunksAreSentWithoutPayload) {
  EnginePair pair({.sizes = {8 * kMiB}});
  pair.announce();
  pair.source().fill(0, 8 * kMiB, 0);
  const RoundReport report = must(pair.sender().run_round());
  EXPECT_EQ(report.sent_bytes, 8 * kMiB);
  EXPECT_LT(report.wire_bytes, 64 * kKiB);
  pair.switch_over();
  EXPECT_EQ(pair.differences(), 0u);
}

TEST(Engine, AFirstRoundWithoutAScanSkipsZeroChunks) {
  for (const codec::CodecMode codec : {codec::CodecMode::kRaw, codec::CodecMode::kAuto}) {
    EnginePair pair({.sizes = {6 * kMiB + 4096, 4 * kMiB, 100'000}, .codec = codec, .min_unscanned = 1});
    pair.announce();
    pair.source(1).write(0, test::random_bytes(pair.source(1).bytes(), 4));
    // The zero chunks are a single chunk, several in a row, a whole message, and the short last chunk.
    pair.source(1).fill(5 * 64 * kKiB, 64 * kKiB, 0);
    pair.source(1).fill(20 * 64 * kKiB, 7 * 64 * kKiB, 0);
    pair.source(1).fill(32 * 64 * kKiB, 32 * 64 * kKiB, 0);
    pair.source(1).fill(6 * kMiB, 4096, 0);
    pair.source(2).fill(0, 4 * kMiB, 0);
    pair.source(3).write(0, test::random_bytes(100'000, 5));
    const std::uint64_t state = 10 * kMiB + 4096 + 100'000;
    const RoundReport first = must(pair.sender().run_round());
    EXPECT_EQ(first.dirty_bytes, state);
    EXPECT_EQ(first.sent_bytes, state);
    const std::uint64_t random = (96 - 40) * 64 * kKiB + 100'000;
    EXPECT_GE(first.wire_bytes, random);
    EXPECT_LT(first.wire_bytes, random + 64 * kKiB);
    EXPECT_EQ(first.scan_ns, 0);
    EXPECT_EQ(must(pair.sender().run_round()).dirty_bytes, 0u);
    pair.source(1).fill(100'000, 1, 0x77);
    EXPECT_EQ(must(pair.sender().run_round()).dirty_bytes, 64 * kKiB);
    pair.switch_over();
    EXPECT_EQ(pair.differences(), 0u);
    EXPECT_EQ(pair.mismatches(), 0u);
  }
}

TEST(Engine, RoundsWithoutAFirstScanEndWithEqualMemory) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    EnginePair pair({.sizes = {3 * kMiB + 48, 2 * kMiB}, .lanes = 1 + seed % 3, .min_unscanned = 1});
    pair.announce();
    Writer writer(pair, {1, 2}, seed);
    for (int round = 0; round < 3; ++round) {
      (void)must(pair.sender().run_round());
      writer.wait_for_writes(20);
      if (round > 0) continue;
      pair.add_buffers(3, 1, kMiB + 16);  // the job allocates buffers, which are also sent without a scan
      pair.announce();
    }
    writer.stop();
    pair.switch_over();
    EXPECT_EQ(pair.differences(), 0u);
    EXPECT_EQ(pair.mismatches(), 0u);
  }
}

// Hooks that change chunks that have been sent, while the first round still runs.
class ChangeDuringRound : public FaultHooks {
 public:
  const test::Buffer* buffer = nullptr;
  std::uint64_t chunks = 0;
  std::atomic<std::uint64_t> seen{0};
  void before_copy(const ChunkId&, const TransferRegion&) override {
    if (seen.fetch_add(1) == 1000 && buffer != nullptr)
      for (std::uint64_t i = 0; i < chunks; ++i) buffer->fill(i * 64 * kKiB, 1, 0x3C);
  }
};

TEST(Engine, FirstRoundSamplesChunksThatBecameDirtyAgain) {
  for (const std::uint64_t changed : {0, 256}) {
    ChangeDuringRound hooks;
    EnginePair pair({.sizes = {128 * kMiB}, .lanes = 1, .source_hooks = &hooks});
    pair.announce();
    pair.source().write(0, test::random_bytes(128 * kMiB, 3));
    hooks.buffer = &pair.source();
    hooks.chunks = changed;
    const RoundReport first = must(pair.sender().run_round());
    ASSERT_TRUE(first.sampled_dirty_bytes.has_value());
    const double real = static_cast<double>(changed) * 64 * kKiB;
    EXPECT_GE(static_cast<double>(*first.sampled_dirty_bytes), real / 2);
    EXPECT_LE(static_cast<double>(*first.sampled_dirty_bytes), real * 2 + 10 * kMiB);
    EXPECT_FALSE(must(pair.sender().run_round()).sampled_dirty_bytes.has_value());
  }
  EnginePair small({});
  small.announce();
  EXPECT_FALSE(must(small.sender().run_round()).sampled_dirty_bytes.has_value());
}

// Hooks that block the lane's thread in its first copy until the test releases the copy.
class HoldFirstCopy : public FaultHooks {
 public:
  std::atomic<bool> held{false};
  std::atomic<bool> release{false};
  void before_copy(const ChunkId&, const TransferRegion&) override {
    if (held.exchange(true)) return;
    held.notify_all();
    release.wait(false);
  }
};

// A job that frees all its memory posts more messages between two steps of the lane than the lane takes at a
// time.
TEST(Engine, RegionsDroppedTogetherAreReleasedInOrder) {
  constexpr std::uint64_t kKept = 2 * kMaxChunks;  // more regions than the held message contains
  constexpr std::uint64_t kDropped =
      2 * transport::kMaxInFlight;  // all fit in the queue: the scan must not wait
  HoldFirstCopy hooks;
  EnginePair pair(
      {.sizes = std::vector<std::uint64_t>(kKept + kDropped, 4 * kKiB), .lanes = 1, .source_hooks = &hooks});
  pair.announce();
  for (std::uint64_t id = 1; id <= kKept; ++id)
    pair.source(id).write(0, test::random_bytes(4 * kKiB, static_cast<unsigned>(id)));
  std::optional<Result<RoundReport>> round;
  std::thread rounds([&] { round = pair.sender().run_round(); });
  hooks.held.wait(false);
  for (std::uint64_t id = kKept + 1; id <= kKept + kDropped; ++id) pair.drop(id);
  hooks.release.store(true);
  hooks.release.notify_all();
  rounds.join();
  must(std::move(*round));
  for (std::uint64_t id = kKept + 1; id <= kKept + kDropped; ++id) {
    EXPECT_FALSE(pair.engine_holds(id));
    pair.free_buffers(id);
  }
  pair.switch_over();
  EXPECT_EQ(pair.report.state_bytes, kKept * 4 * kKiB) << "the target heard of all of them";
  EXPECT_EQ(pair.differences(), 0u);
}

class CutAtFirstCopy : public FaultHooks {
 public:
  Sender* sender = nullptr;
  void before_copy(const ChunkId&, const TransferRegion&) override {
    if (sender != nullptr) std::exchange(sender, nullptr)->cut_round();
  }
};

TEST(Engine, AnInterruptedRoundLeavesItsRemainderToTheFinalRound) {
  CutAtFirstCopy hooks;
  EnginePair pair({.sizes = {16 * kMiB}, .lanes = 1, .source_hooks = &hooks});
  pair.announce();
  pair.source().write(0, test::random_bytes(16 * kMiB, 3));
  hooks.sender = &pair.sender();
  const RoundReport report = must(pair.sender().run_round());
  EXPECT_TRUE(report.cut);
  EXPECT_LT(report.sent_bytes, 16 * kMiB);
  EXPECT_TRUE(must(pair.sender().run_round()).cut) << "until the final round no other one runs";
  pair.switch_over();
  EXPECT_EQ(pair.differences(), 0u);
}

// Host state is sent while the source still writes it. Pieces leave as the state grows, and the last piece
// states the length.
TEST(Engine, GrowingHostStateIsReceived) {
  constexpr std::uint64_t kAll = 13 * kMiB + 4711;
  enum class How { kUnannounced, kAnnounced, kBegunBesideRounds };
  for (const How how : {How::kUnannounced, How::kAnnounced, How::kBegunBesideRounds}) {
    EnginePair pair({});
    pair.announce();
    must(pair.sender().run_round());
    const std::vector<std::byte> content = test::random_bytes(kAll, 5);
    std::vector<std::byte> memory(32 * kMiB);
    if (how != How::kUnannounced) pair.sender().announce_host_state(memory.size(), 8 * kMiB);
    const auto grow_to = [&](std::uint64_t from, std::uint64_t to) {
      std::copy_n(content.begin() + static_cast<std::ptrdiff_t>(from), to - from,
                  memory.begin() + static_cast<std::ptrdiff_t>(from));
      pair.sender().host_state_grew(to, to == kAll);
    };
    grow_to(0, kMiB);  // grows before the final round
    std::uint64_t made = kMiB;
    if (how == How::kBegunBesideRounds) {
      pair.sender().begin_host_state(memory);
      grow_to(kMiB, 9 * kMiB);
      made = 9 * kMiB;
      must(pair.sender().run_round());
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (pair.sender().progress().host_state_bytes < 6 * kMiB) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "no host state left beside the rounds";
        std::this_thread::yield();
      }
    }
    std::thread maker([&] {
      for (std::uint64_t at = made; at < kAll; at += kMiB) grow_to(at, std::min(at + kMiB, kAll));
    });
    pair.final_report = must(pair.sender().run_final_while_it_grows(memory));
    maker.join();
    pair.verdict = must(pair.commit());
    pair.wait_verified();
    ASSERT_TRUE(pair.verified);
    EXPECT_EQ(pair.differences(), 0u);
    ASSERT_EQ(pair.host_state.bytes, kAll);
    std::vector<std::byte> arrived(kAll + 1);
    EXPECT_EQ(::pread(pair.host_state.file.get(), arrived.data(), arrived.size(), 0),
              static_cast<ssize_t>(kAll))
        << "the file is as long as what arrived";
    arrived.resize(kAll);
    EXPECT_TRUE(arrived == content);
  }
}

// The final round is ordered while the source waits for the target's memory. The wait ends, and the running
// scan counts.
TEST(Engine, AWaitForTheMemoryOfTheTargetCanBeInterrupted) {
  const std::vector<std::byte> content = test::random_bytes(kMiB, 5);
  EnginePair pair({});
  pair.announce();
  must(pair.sender().run_round());
  pair.sender().announce_host_state(512 * kMiB, 512 * kMiB);
  pair.sender().begin_verify();
  pair.sender().cut_round();
  must(pair.sender().wait_verified());
  pair.switch_over(content);
  ASSERT_TRUE(pair.verified);
  EXPECT_EQ(pair.host_state.bytes, kMiB);
  EXPECT_EQ(pair.differences(), 0u);
}

TEST(Engine, HostStateLargerThanAnnouncedIsRefused) {
  const std::vector<std::byte> content = test::random_bytes(kMiB + 1, 5);
  EnginePair pair({});
  pair.announce();
  must(pair.sender().run_round());
  pair.sender().announce_host_state(kMiB, 0);
  EXPECT_FALSE(pair.sender().run_final(content).has_value());
  EXPECT_TRUE(pair.wait_failed().code() == ErrorCode::kProtocol || !pair.verified);
}

TEST(Engine, ARefusedPlanReportsTheReasonAndEndsBothSides) {
  EnginePair pair({});
  pair.refuse_plan = true;
  const std::array<std::byte, 24> plan{};
  auto sent = pair.sender().send_plan(plan);
  ASSERT_FALSE(sent.has_value());
  EXPECT_EQ(sent.error().code(), ErrorCode::kRefused);
  EXPECT_NE(sent.error().to_string().find("Tensor \"w\""), std::string::npos);
  EXPECT_EQ(pair.wait_failed().code(), ErrorCode::kRefused);
}

TEST(Engine, CancelEndsBothSidesWithTheReason) {
  EnginePair pair({});
  pair.announce();
  pair.sender().cancel(Error(ErrorCode::kAborted, "the user said so"));
  auto round = pair.sender().run_round();
  ASSERT_FALSE(round.has_value());
  EXPECT_EQ(round.error().code(), ErrorCode::kAborted);
  EXPECT_NE(pair.wait_failed().to_string().find("the user said so"), std::string::npos);
}

TEST(Engine, ADisconnectedTargetIsAnErrorAndNotAHang) {
  EnginePair pair({});
  pair.announce();
  must(pair.sender().run_round());
  pair.end_receiver();
  pair.source().fill(0, 1000, 1);
  auto round = pair.sender().run_final({});
  ASSERT_FALSE(round.has_value());
  pair.drop(1);  // this drop must not hang either
  EXPECT_FALSE(pair.engine_holds(1));
}

TEST(Engine, LinkAndClockAreMeasuredBetweenRounds) {
  EnginePair pair({});
  pair.announce();
  EXPECT_GT(must(pair.sender().measure_link()), 0u);
  const ClockOffset clock = must(pair.sender().measure_clock());
  EXPECT_LE(std::abs(clock.offset), clock.uncertainty) << "both sides have the same clock here";
  must(pair.sender().run_round());
  EXPECT_GT(must(pair.sender().measure_link()), 0u);
  pair.switch_over();
  EXPECT_EQ(pair.differences(), 0u);
}

TEST(Engine, BandwidthLimitIsTheLinkRateAndAllBytesArrive) {
  EnginePair pair({.sizes = {2 * kMiB}, .bandwidth = 64 * kMiB});
  pair.announce();
  pair.source().write(0, test::random_bytes(2 * kMiB, 3));
  EXPECT_EQ(must(pair.sender().measure_link()), 64 * kMiB);
  must(pair.sender().run_round());
  pair.sender().set_bandwidth(0);
  pair.switch_over();
  EXPECT_EQ(pair.differences(), 0u);
}

class OneRegion : public ReceiverDelegate {
 public:
  Result<PlanPlaces> on_plan(std::span<const std::byte>) override {
    PlanPlaces places;
    places.chunk_bytes = 64 * kKiB;
    places.regions.push_back({1, 1, 0x10000, 4 * kMiB, nullptr});
    return places;
  }
  Result<void> on_manifest(std::span<const std::byte>, const track::Fingerprint&,
                           const ReceivedHostState&) override {
    return ok();
  }
  void on_verified(const VerifiedReport&, ReceivedHostState) override {}
  void on_failed(const Error&) override {}
};

// A hostile or broken source may order a scan at any time. The running scan reads lists that the next scan
// would replace.
TEST(Engine, NoScanOfTheTargetStartsDuringARunningScan) {
  const Device device = must(Device::open(0));
  OneRegion delegate;
  ReceiverCore core(device, {}, track::FingerprintParams::expand({}, track::FingerprintPurpose::kRoot),
                    delegate, nullptr, kMiB, kMiB);
  must(core.accept_plan());
  const auto place = [&](std::uint32_t round) {
    LaneHeader header;
    header.round = round;
    header.count = 1;
    ChunkRecord record;
    record.region = record.generation = 1;
    record.encoding = static_cast<std::uint8_t>(codec::Encoding::kZero);
    LaneBuffer message(LaneMessage::kChunks, {}, round);
    message.append(record);
    std::array<ReceiverCore::Placed, kMaxChunks> places;
    const track::Fingerprint zeroes{1, 2};
    must(core.place(header, message.bytes(), 0, places));
    core.arrived(header, std::span(&record, 1), places, std::span(&zeroes, 1));
  };
  place(1);
  std::vector<track::ChunkRange> ranges;
  std::vector<ReceiverCore::ScanItem> items;
  must(core.begin_verify(2, ranges, items));
  EXPECT_EQ(ranges.size(), 1u);
  for (const std::uint32_t round : {1U, 2U, 3U}) {
    std::vector<track::ChunkRange> more;
    std::vector<ReceiverCore::ScanItem> more_items;
    const auto second = core.begin_verify(round, more, more_items);
    ASSERT_FALSE(second.has_value()) << "round " << round;
    EXPECT_EQ(second.error().code(), ErrorCode::kProtocol);
    EXPECT_TRUE(more.empty() && more_items.empty());
  }
  core.end_scan(1, 2, 3);
  ranges.clear();
  items.clear();
  must(core.begin_verify(2, ranges, items));
  EXPECT_EQ(ranges.size(), 1u);
  EXPECT_FALSE(core.begin_verify(1, ranges, items).has_value()) << "an earlier round";
}

// Each chunk is passed on once and in order, with slices of any size, whether or not the scan has the device
// to itself.
TEST(Engine, FinalScanIncludesEveryChunkOnce) {
  const Device& device = test::device(0);
  const auto params = track::FingerprintParams::expand({}, track::FingerprintPurpose::kChunks);
  const auto kernels = must(track::TrackKernels::create(device, params));
  const std::vector<std::uint64_t> sizes = {40 * kMiB + 4096, 16, 64 * kKiB, 17 * kMiB, 5 * kMiB};
  std::vector<std::unique_ptr<test::Buffer>> buffers;
  std::vector<std::vector<std::byte>> contents;
  std::vector<std::unique_ptr<SourceRegion>> regions;
  std::vector<SourceRegion*> all;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    buffers.push_back(std::make_unique<test::Buffer>(device, sizes[i]));
    contents.push_back(test::random_bytes(sizes[i], static_cast<unsigned>(i)));
    buffers.back()->write(0, contents.back());
    TransferRegion region{i + 1, 1, buffers.back()->pointer(), sizes[i], nullptr};
    regions.push_back(std::make_unique<SourceRegion>(std::move(region), 64 * kKiB, ChunkHistory()));
    all.push_back(regions.back().get());
  }
  const auto scan = must(FinalScan::create(kernels, 64 * kKiB, 2 * kMiB));
  for (unsigned turn = 0; turn < 4; ++turn) {
    if (turn == 3) all[3]->begin_drop();
    std::mt19937 random(turn);
    std::size_t region = 0;
    std::uint32_t chunk = 0;
    must(scan->run(
        all, [&] { return turn == 0 || (turn > 1 && random() % 2 == 0); },
        [&](std::span<const ChunkRun> runs, std::span<const track::Fingerprint> found) -> Result<bool> {
          for (const ChunkRun& run : runs) {
            while (all[region]->dropped()) ++region;
            EXPECT_EQ(run.region, all[region]);
            EXPECT_EQ(run.first, chunk);
            for (; chunk < run.first + run.count; ++chunk, found = found.subspan(1)) {
              const std::uint64_t at = chunk * 64 * kKiB;
              const auto bytes =
                  std::span(contents[region]).subspan(at, chunk_length(sizes[region], 64 * kKiB, chunk));
              EXPECT_EQ(found.front(), track::fingerprint(*params, bytes));
            }
            if (chunk < run.region->chunks()) continue;
            ++region;
            chunk = 0;
          }
          EXPECT_TRUE(found.empty());
          return random() % 3 == 0;
        }));
    EXPECT_EQ(region, all.size());
  }
  const auto failed = scan->run(
      all, [] { return true; },
      [](std::span<const ChunkRun>, std::span<const track::Fingerprint>) -> Result<bool> {
        return Error(ErrorCode::kAborted, "enough");
      });
  EXPECT_FALSE(failed.has_value());
  for (SourceRegion* region : all) {
    region->begin_drop();
    region->finish_drop();  // hangs if a slice still uses the region
  }
}

}  // namespace
}  // namespace ckpt::engine
