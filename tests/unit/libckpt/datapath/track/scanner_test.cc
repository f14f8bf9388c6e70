// SPDX-License-Identifier: Apache-2.0
// Compares the device code with the host's fingerprints. The tests run on any driver.
#include "libckpt/datapath/track/scanner.h"

#include <gtest/gtest.h>

#include "tests/unit/libckpt/datapath/track/device_test.h"

namespace ckpt::track {
namespace {

class ScannerTest : public DeviceTest {
 protected:
  std::unique_ptr<Scanner> make_scanner(const ScannerOptions& options) {
    auto scanner = Scanner::create(kernels_, options);
    EXPECT_TRUE(scanner.has_value());
    return *std::move(scanner);
  }
};

TEST_F(ScannerTest, ScannerMatchesTheTestVectors) {
  auto batch = *FingerprintBatch::create(kernels_, 16);
  std::vector<ChunkRange> chunks;
  std::vector<Fingerprint> expected;
  for (const Vector& vector : kVectors) {
    if (vector.purpose != 0 || vector.length == 0) continue;
    chunks.push_back({upload(test_message(vector.length)), vector.length});
    expected.push_back({vector.lo, vector.hi});
  }
  const auto launched = batch->launch(nullptr, chunks);
  ASSERT_TRUE(launched.has_value()) << launched.error().to_string();
  ASSERT_TRUE(batch->wait().has_value());
  EXPECT_EQ(std::vector<Fingerprint>(batch->results().begin(), batch->results().end()), expected);
}

// Simulates one mover: each migration loads its own kernels, and the first migration to run them may be the
// first to end.
TEST_F(ScannerTest, KernelsLoadedSeveralTimesAreIndependent) {
  const std::vector<std::byte> data = random_bytes(65536);
  const std::vector<ChunkRange> chunk = {{upload(data), data.size()}};
  const auto check = [&](std::shared_ptr<const TrackKernels> kernels) {
    auto batch = *FingerprintBatch::create(std::move(kernels), 1);
    ASSERT_TRUE(batch->launch(nullptr, chunk).has_value());
    const auto done = batch->wait();
    ASSERT_TRUE(done.has_value()) << done.error().to_string();
    EXPECT_EQ(batch->results()[0], fingerprint(*params_, data));
  };
  auto first = *TrackKernels::create(*device_, params_);
  const auto second = *TrackKernels::create(*device_, params_);
  check(first);
  first.reset();
  check(second);
  check(kernels_);
}

TEST_F(ScannerTest, SlicedScanEqualsTheHostFingerprints) {
  constexpr std::uint64_t kChunk = 65536;
  std::vector<std::byte> data = random_bytes(40 * kChunk + 1234);
  std::fill(data.begin() + 3 * kChunk, data.begin() + 5 * kChunk, std::byte{0});
  const CUdeviceptr address = upload(data);
  std::vector<ChunkRange> chunks;
  append_chunks(address, data.size(), kChunk, chunks);
  ASSERT_EQ(chunks.size(), 41u);

  for (const double duty : {1.0, 0.5}) {
    auto scanner =
        make_scanner({.slice_bytes = 5 * kChunk, .slice_chunks = 4, .slices_in_flight = 3, .duty = duty});
    std::vector<Fingerprint> scanned(chunks.size());
    ASSERT_TRUE(scanner->scan(chunks, scanned).has_value());
    for (std::size_t i = 0; i < chunks.size(); ++i)
      EXPECT_EQ(scanned[i], fingerprint(*params_, std::span(data).subspan(i * kChunk, chunks[i].bytes))) << i;
    EXPECT_EQ(scanned[3], fingerprint_of_zeroes(*params_, kChunk));
    // Next to a job each launch is short, so a busy machine needs more launches.
    if (duty < 1.0)
      EXPECT_GE(scanner->times().launches, 11u);
    else
      EXPECT_EQ(scanner->times().launches, 11u);
  }
}

// Slices that overlap on the device are delivered in order and with equal values, in several scans of one
// scanner.
TEST_F(ScannerTest, ConcurrentSlicesAreDeliveredInOrder) {
  constexpr std::uint64_t kChunk = 8192;
  const std::vector<std::byte> data = random_bytes(256 * kChunk);
  const CUdeviceptr address = upload(data);
  std::vector<ChunkRange> chunks;
  append_chunks(address, data.size(), kChunk, chunks);
  std::vector<Fingerprint> expected;
  for (std::size_t i = 0; i < chunks.size(); ++i)
    expected.push_back(fingerprint(*params_, std::span(data).subspan(i * kChunk, kChunk)));
  auto scanner = make_scanner({.slice_bytes = 3 * kChunk, .slices_in_flight = 4});
  for (int turn = 0; turn < 10; ++turn) {
    std::vector<Fingerprint> scanned;
    const auto result =
        scanner->scan(chunks, [&](std::size_t first, std::span<const Fingerprint> part) -> Result<void> {
          EXPECT_EQ(first, scanned.size());
          scanned.insert(scanned.end(), part.begin(), part.end());
          return ok();
        });
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(scanned, expected) << turn;
  }
}

TEST_F(ScannerTest, LaunchWaitsForThePreviousLaunch) {
  const std::vector<std::byte> data = random_bytes(65536);
  const ChunkRange chunk{upload(data), data.size()};
  const Fingerprint expected = fingerprint(*params_, data);
  CUstream streams[2] = {};
  for (CUstream& stream : streams)
    ASSERT_EQ(device_->api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  auto first = *FingerprintBatch::create(kernels_, 1);
  auto second = *FingerprintBatch::create(kernels_, 1);
  for (int turn = 0; turn < 20; ++turn) {
    ASSERT_TRUE(first->launch(streams[0], std::span(&chunk, 1)).has_value());
    ASSERT_TRUE(second->launch(streams[1], std::span(&chunk, 1), first.get()).has_value());
    ASSERT_TRUE(second->wait().has_value());
    EXPECT_TRUE(first->ready().value()) << turn;
    EXPECT_EQ(first->results()[0], expected);
    EXPECT_EQ(second->results()[0], expected);
  }
  for (CUstream stream : streams) device_->api().cuStreamDestroy_v2(stream);
}

TEST_F(ScannerTest, ScanFindsOneChangedByte) {
  constexpr std::uint64_t kChunk = 262144;
  std::vector<std::byte> data = random_bytes(8 * kChunk);
  const CUdeviceptr address = upload(data);
  std::vector<ChunkRange> chunks;
  append_chunks(address, data.size(), kChunk, chunks);
  auto scanner = make_scanner({});
  std::vector<Fingerprint> before(8), after(8);
  ASSERT_TRUE(scanner->scan(chunks, before).has_value());
  ASSERT_EQ(device_->api().cuMemsetD8_v2(address + 5 * kChunk + 99,
                                         std::to_integer<unsigned char>(~data[5 * kChunk + 99]), 1),
            CUDA_SUCCESS);
  ASSERT_TRUE(scanner->scan(chunks, after).has_value());
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(before[i] == after[i], i != 5) << i;
}

TEST_F(ScannerTest, ScanKeepsItsDutyCycle) {
  constexpr std::uint64_t kChunk = 4096;
  constexpr std::size_t kSlices = 24;
  const CUdeviceptr address = upload(random_bytes(kSlices * kChunk));
  std::vector<ChunkRange> chunks;
  append_chunks(address, kSlices * kChunk, kChunk, chunks);
  auto scanner = make_scanner({.slice_bytes = kChunk, .duty = 0.03});
  std::vector<Fingerprint> out(kSlices);
  ASSERT_TRUE(scanner->scan(chunks, out).has_value());
  const ScanTimes times = scanner->times();
  EXPECT_EQ(times.slices, kSlices);
  EXPECT_GT(times.busy, 0);
  EXPECT_LE(static_cast<double>(times.busy), 0.03 * static_cast<double>(times.busy + times.paused));
}

TEST_F(ScannerTest, FullDutyEndsTheIdleTimeImmediately) {
  const CUdeviceptr address = upload(random_bytes(1 << 20));
  std::vector<ChunkRange> chunks;
  append_chunks(address, 1 << 20, 65536, chunks);
  // Each wait would last a thousand times as long as the slice.
  auto scanner = make_scanner({.slice_bytes = 65536, .duty = 0.001});
  std::size_t delivered = 0;
  const auto result =
      scanner->scan(chunks, [&](std::size_t, std::span<const Fingerprint> part) -> Result<void> {
        delivered += part.size();
        scanner->set_duty(1);
        return ok();
      });
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(delivered, chunks.size());
  EXPECT_EQ(scanner->times().slices, 1u) << "slices that were followed by a rest";
  EXPECT_LT(scanner->times().paused, ScanPace::pause_after(scanner->times().busy, 0.001));
}

TEST_F(ScannerTest, CancelEndsAScanUntilResumed) {
  const CUdeviceptr address = upload(random_bytes(1 << 20));
  std::vector<ChunkRange> chunks;
  append_chunks(address, 1 << 20, 65536, chunks);
  auto scanner = make_scanner({.slice_chunks = 1, .slices_in_flight = 1});
  std::size_t delivered = 0;
  const auto result =
      scanner->scan(chunks, [&](std::size_t, std::span<const Fingerprint> part) -> Result<void> {
        delivered += part.size();
        scanner->cancel();
        return ok();
      });
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), ErrorCode::kAborted);
  EXPECT_EQ(delivered, 1u);
  scanner->resume();
  std::vector<Fingerprint> out(chunks.size());
  EXPECT_TRUE(scanner->scan(chunks, out).has_value());
}

TEST_F(ScannerTest, RefusesUnsupportedChunks) {
  auto batch = *FingerprintBatch::create(kernels_, 2);
  const CUdeviceptr address = allocate(4 << 20);
  for (const ChunkRange bad :
       {ChunkRange{address, 0}, ChunkRange{address, kMaxChunkBytes + 1}, ChunkRange{address + 4, 64}})
    EXPECT_FALSE(batch->launch(nullptr, std::span(&bad, 1)).has_value());
  const std::vector<ChunkRange> three(3, {address, 64});
  EXPECT_FALSE(batch->launch(nullptr, three).has_value());
  EXPECT_FALSE(batch->busy());
}

TEST_F(ScannerTest, CopyListGathersScattersAndWritesZeroes) {
  const std::vector<std::byte> data = random_bytes(3 * 65536 + 37);
  const CUdeviceptr source = upload(data);
  const CUdeviceptr staging = allocate(4 * 65536);
  const CUdeviceptr target = upload(random_bytes(4 * 65536));
  auto list = *CopyList::create(kernels_, 8);
  const std::vector<CopyRange> gather = {{staging, source + 2 * 65536, 65536 + 37},
                                         {staging + 2 * 65536, source, 65536}};
  ASSERT_TRUE(list->launch(nullptr, gather).has_value());
  EXPECT_FALSE(list->launch(nullptr, gather).has_value()) << "a list in use was taken again";
  ASSERT_TRUE(list->wait().has_value());
  const std::vector<CopyRange> scatter = {{target, staging + 2 * 65536, 65536},
                                          {target + 65536, 0, 65536 + 5},
                                          {target + 2 * 65536 + 16, staging, 65536 + 37}};
  ASSERT_TRUE(list->launch(nullptr, scatter).has_value());
  ASSERT_TRUE(list->wait().has_value());
  const std::vector<std::byte> result = download(target, 4 * 65536);
  EXPECT_TRUE(std::equal(data.begin(), data.begin() + 65536, result.begin()));
  EXPECT_TRUE(std::all_of(result.begin() + 65536, result.begin() + 2 * 65536 + 5,
                          [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_TRUE(std::equal(data.begin() + 2 * 65536, data.end(), result.begin() + 2 * 65536 + 16));
}

}  // namespace
}  // namespace ckpt::track
