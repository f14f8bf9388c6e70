// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/snapshots/wide_scan.h"

#include <algorithm>
#include <optional>
#include <thread>

namespace ckpt::mover {
namespace {

constexpr std::size_t kScanners = 4;

}  // namespace

Result<std::unique_ptr<WideScan>> WideScan::create(
    const std::shared_ptr<const track::TrackKernels>& kernels) {
  auto wide = std::make_unique<WideScan>();
  for (std::size_t i = 0; i < kScanners; ++i) {
    CKPT_TRY(scanner, track::Scanner::create(kernels, track::ScannerOptions{}));
    wide->scanners_.push_back(std::move(scanner));
  }
  return wide;
}

Result<void> WideScan::scan(std::span<const track::ChunkRange> chunks, std::span<track::Fingerprint> out) {
  narrow().set_duty(1.0);
  const std::size_t share = (chunks.size() + scanners_.size() - 1) / scanners_.size();
  std::vector<std::optional<Error>> failures(scanners_.size());
  const auto scan_share = [&](std::size_t i) {
    const std::size_t from = std::min(i * share, chunks.size());
    const std::size_t count = std::min(share, chunks.size() - from);
    if (count == 0) return;
    const auto scanned = scanners_[i]->scan(chunks.subspan(from, count), out.subspan(from, count));
    if (!scanned) failures[i] = scanned.error();
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < scanners_.size(); ++i) threads.emplace_back(scan_share, i);
  scan_share(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::optional<Error>& failure : failures)
    if (failure) return *failure;
  return ok();
}

void WideScan::cancel() {
  for (const auto& scanner : scanners_) scanner->cancel();
}

void WideScan::resume() {
  for (const auto& scanner : scanners_) scanner->resume();
}

}  // namespace ckpt::mover
