// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/track/scanner.h"

#include <algorithm>
#include <chrono>

#include "libckpt/base/check.h"

namespace ckpt::track {
namespace {

std::uint64_t total_bytes(std::span<const ChunkRange> chunks) noexcept {
  std::uint64_t bytes = 0;
  for (const ChunkRange& chunk : chunks) bytes += chunk.bytes;
  return bytes;
}

}  // namespace

Result<std::unique_ptr<Scanner>> Scanner::create(std::shared_ptr<const TrackKernels> kernels,
                                                 const ScannerOptions& options) {
  if (options.slice_bytes == 0 || options.slice_chunks == 0 || options.slices_in_flight == 0 ||
      !(options.duty > 0 && options.duty <= 1))
    return Error(ErrorCode::kInvalidArgument, "A scanner needs slices, and a duty cycle above 0 and up to 1");
  std::unique_ptr<Scanner> scanner(new Scanner(std::move(kernels), options));
  const Device& device = scanner->kernels_->device();
  ContextScope scope(device);
  for (std::uint32_t i = 0; i < options.slices_in_flight; ++i) {
    CUstream stream = nullptr;
    CKPT_CUDA_TRY(device.api(), cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    scanner->streams_.push_back(stream);
    CKPT_TRY(batch, FingerprintBatch::create(scanner->kernels_, options.slice_chunks));
    scanner->batches_.push_back(std::move(batch));
  }
  return scanner;
}

Scanner::~Scanner() {
  drain();
  ContextScope scope(kernels_->device());
  for (CUstream stream : streams_) kernels_->device().api().cuStreamDestroy_v2(stream);
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
  std::size_t launched = 0;     // the number of launched chunks
  std::size_t delivered = 0;    // the number of delivered chunks
  std::size_t slices = 0;       // the number of launched slices
  std::size_t slices_done = 0;  // the number of delivered slices
  // The time at which the device began the next slice to be delivered, if that is known. The slice may have
  // ended unnoticed while on_slice ran.
  Nanos begun = now_ns();
  bool begun_known = true;
  while (delivered < chunks.size()) {
    CKPT_TRY(duty, check_cancelled());
    // With pauses between slices, a slice is launched only when the previous slice is done, so that its time
    // is its own.
    const bool shared = duty < 1;
    const Nanos start = now_ns();
    const std::size_t former = slices - slices_done;
    while (launched < chunks.size() && slices - slices_done < max_in_flight(duty)) {
      const std::size_t count = slice_length(chunks.subspan(launched), duty);
      CKPT_TRYV(launch_slice(slices, chunks.subspan(launched, count)));
      launched += count;
      ++slices;
    }
    FingerprintBatch& oldest = *batches_[slices_done % batches_.size()];
    CKPT_TRY(unseen, oldest.ready());
    CKPT_TRYV(oldest.wait());
    const Nanos end = now_ns();
    const Nanos busy = end - start;
    const std::size_t count = oldest.results().size();
    CKPT_CHECK(slices_done < slices && count <= launched - delivered,
               "ENG-2: a scan delivers what it has launched");
    const std::uint64_t bytes = total_bytes(chunks.subspan(delivered, count));
    if (begun_known && !unseen) pace_.delivered(bytes, end - begun);
    CKPT_TRYV(on_slice(delivered, oldest.results()));
    // A slice launched while the duty was 1 was measured from an unknown point in its middle.
    if (shared && former == 0) pace_.measured(bytes, busy);
    delivered += count;
    ++slices_done;
    if (shared) pause_scan_after(busy);
    begun = shared ? now_ns() : end;
    begun_known = shared || !unseen;
  }
  return ok();
}

std::size_t Scanner::max_in_flight(double duty) const noexcept {
  if (duty < 1) return 1;
  return pace_.short_slices() ? batches_.size() : std::min<std::size_t>(2, batches_.size());
}

Result<void> Scanner::launch_slice(std::size_t slice, std::span<const ChunkRange> chunks) {
  const std::size_t at = slice % batches_.size();
  const FingerprintBatch* const former =
      pace_.short_slices() ? nullptr : batches_[(at + batches_.size() - 1) % batches_.size()].get();
  CKPT_TRYV(batches_[at]->launch(streams_[at], chunks, former));
  const std::lock_guard lock(mutex_);
  ++times_.launches;
  return ok();
}

std::size_t Scanner::slice_length(std::span<const ChunkRange> chunks, double duty) const noexcept {
  const std::uint64_t limit = pace_.slice_bytes(duty);
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  while (count < chunks.size() && count < options_.slice_chunks && bytes < limit)
    bytes += chunks[count++].bytes;
  // Leaves out the last chunk. With it, the slice may exceed the size that takes a millisecond by nearly a
  // chunk of 2 MiB.
  if (duty < 1 && count > 1 && bytes > limit) --count;
  return count;
}

Result<double> Scanner::check_cancelled() {
  const std::lock_guard lock(mutex_);
  if (cancelled_) return Error(ErrorCode::kAborted, "The scan was cancelled");
  return duty_;
}

void Scanner::pause_scan_after(Nanos busy) {
  const Nanos start = now_ns();
  std::unique_lock lock(mutex_);
  ++times_.slices;
  times_.busy += busy;
  times_.longest_slice = std::max(times_.longest_slice, busy);
  for (;;) {
    const double duty = duty_;
    const Nanos left = ScanPace::pause_after(busy, duty) - (now_ns() - start);
    if (cancelled_ || left <= 0) break;
    changed_.wait_for(lock, std::chrono::nanoseconds(left),
                      [this, duty] { return cancelled_ || duty_ != duty; });
  }
  times_.paused += now_ns() - start;
}

ScanTimes Scanner::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
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
