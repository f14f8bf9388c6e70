// SPDX-License-Identifier: Apache-2.0
#include "libckpt/track/scanner.h"

#include <algorithm>
#include <chrono>

namespace ckpt::track {

Result<std::unique_ptr<Scanner>> Scanner::create(std::shared_ptr<const TrackKernels> kernels,
                                                 const ScannerOptions& options) {
  if (options.slice_bytes == 0 || options.slice_chunks == 0 || options.slices_in_flight == 0 ||
      !(options.duty > 0 && options.duty <= 1))
    return Error(ErrorCode::kInvalidArgument, "A scanner needs slices, and a duty in (0, 1]");
  std::unique_ptr<Scanner> scanner(new Scanner(std::move(kernels), options));
  const Device& device = scanner->kernels_->device();
  {
    ContextScope scope(device);
    CKPT_CUDA_TRY(device.api(), cuStreamCreate(&scanner->stream_, CU_STREAM_NON_BLOCKING));
  }
  for (std::uint32_t i = 0; i < options.slices_in_flight; ++i) {
    CKPT_TRY(batch, FingerprintBatch::create(scanner->kernels_, options.slice_chunks));
    scanner->batches_.push_back(std::move(batch));
  }
  return scanner;
}

Scanner::~Scanner() {
  drain();
  if (stream_ == nullptr) return;
  ContextScope scope(kernels_->device());
  kernels_->device().api().cuStreamDestroy_v2(stream_);
}

Result<void> Scanner::scan(std::span<const ChunkRange> chunks, std::span<Fingerprint> out) {
  if (chunks.size() != out.size())
    return Error(ErrorCode::kInvalidArgument, "A scan needs one result per chunk");
  return scan(chunks, [out](std::size_t first, std::span<const Fingerprint> results) -> Result<void> {
    std::copy(results.begin(), results.end(), out.begin() + static_cast<std::ptrdiff_t>(first));
    return ok();
  });
}

Result<void> Scanner::scan(std::span<const ChunkRange> chunks, const SliceHandler& on_slice) {
  struct Drain {
    Scanner& scanner;
    ~Drain() { scanner.drain(); }
  } drain_at_exit{*this};
  std::size_t launched = 0;     // chunks
  std::size_t delivered = 0;    // chunks
  std::size_t slices = 0;       // launched
  std::size_t slices_done = 0;  // delivered
  Nanos last_done = now_ns();
  while (delivered < chunks.size()) {
    CKPT_TRY(duty, check_cancelled());
    const std::size_t in_flight = duty < 1 ? 1 : batches_.size();
    while (launched < chunks.size() && slices - slices_done < in_flight) {
      const std::size_t count = slice_length(chunks.subspan(launched));
      CKPT_TRYV(batches_[slices % batches_.size()]->launch(stream_, chunks.subspan(launched, count)));
      launched += count;
      ++slices;
    }
    FingerprintBatch& oldest = *batches_[slices_done % batches_.size()];
    CKPT_TRYV(oldest.wait());
    const Nanos done = now_ns();
    CKPT_TRYV(on_slice(delivered, oldest.results()));
    delivered += oldest.results().size();
    ++slices_done;
    if (duty < 1) pause(done - last_done, duty);
    last_done = now_ns();
  }
  return ok();
}

std::size_t Scanner::slice_length(std::span<const ChunkRange> chunks) const noexcept {
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  while (count < chunks.size() && count < options_.slice_chunks && bytes < options_.slice_bytes)
    bytes += chunks[count++].bytes;
  return count;
}

Result<double> Scanner::check_cancelled() {
  const std::lock_guard lock(mutex_);
  if (cancelled_) return Error(ErrorCode::kAborted, "The scan was cancelled");
  return duty_;
}

void Scanner::pause(Nanos busy, double duty) {
  const auto idle = std::chrono::nanoseconds(static_cast<Nanos>(static_cast<double>(busy) * (1 / duty - 1)));
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, idle, [this, duty] { return cancelled_ || duty_ != duty; });
}

void Scanner::drain() noexcept {
  for (const auto& batch : batches_) {
    if (batch->busy()) (void)batch->wait();
  }
}

void Scanner::set_duty(double duty) {
  {
    const std::lock_guard lock(mutex_);
    duty_ = std::clamp(duty, 0.001, 1.0);
  }
  changed_.notify_all();
}

void Scanner::cancel() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  changed_.notify_all();
}

void Scanner::resume() {
  const std::lock_guard lock(mutex_);
  cancelled_ = false;
}

}  // namespace ckpt::track
