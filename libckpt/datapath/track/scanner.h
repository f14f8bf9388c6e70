// SPDX-License-Identifier: Apache-2.0
// Fingerprints of device memory, computed on the device.
//
//   CKPT_TRY(kernels, TrackKernels::create(device, params));          // once per device and migration
//   CKPT_TRY(scanner, Scanner::create(kernels, ScannerOptions{}));
//   CKPT_TRYV(scanner->scan(chunks, fingerprints));                   // a round: blocks the calling thread
//
// The receiver fingerprints chunks that were written:
//
//   CKPT_TRY(batch, FingerprintBatch::create(kernels, 64));
//   CKPT_TRYV(batch->launch(stream, chunks));                         // on the stream that wrote them
//   CKPT_TRYV(batch->wait());
//   use(batch->results());
//
// scan() reads memory while kernels of the job run: chunks may be torn, which the barrier's scan detects
// (ENG-2). Nothing is allocated after create().
// Threads: a Scanner, a batch and a CopyList each belong to one thread at a time; TrackKernels may be shared.
// Each call makes the context current itself. Ownership: objects keep their TrackKernels alive; the Device
// must outlive them all. Errors: those of the driver; kInvalidArgument for a chunk that is empty, longer than
// kMaxChunkBytes or not 16-byte aligned. Lengths are bytes.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/cuda/driver.h"
#include "libckpt/cuda/module.h"
#include "libckpt/datapath/track/device_list.h"
#include "libckpt/datapath/track/fingerprint.h"
#include "libckpt/datapath/track/scan_pace.h"

namespace ckpt::track {

struct ChunkRange {
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0;
};

// An entry of a copy list. A `source` of 0 orders zeros (ENG-6). Both addresses are device addresses and
// 16-byte aligned.
struct CopyRange {
  CUdeviceptr target = 0;
  CUdeviceptr source = 0;
  std::uint64_t bytes = 0;
};

// Appends the chunks of one mapped range. Each has chunk_bytes bytes; the last may be shorter.
void append_chunks(CUdeviceptr address, std::uint64_t bytes, std::uint64_t chunk_bytes,
                   std::vector<ChunkRange>& out);

// The loaded device code and the expanded key in device memory.
class TrackKernels {
 public:
  static Result<std::shared_ptr<const TrackKernels>> create(const Device& device,
                                                            std::shared_ptr<const FingerprintParams> params);
  ~TrackKernels();
  TrackKernels(const TrackKernels&) = delete;
  TrackKernels& operator=(const TrackKernels&) = delete;

  [[nodiscard]] const Device& device() const noexcept { return device_; }
  [[nodiscard]] const FingerprintParams& params() const noexcept { return *params_; }

  // Launches the kernels on lists that are already in device memory. The context must be current.
  Result<void> launch_fingerprint(CUstream stream, CUdeviceptr chunk_list, CUdeviceptr results,
                                  std::uint32_t count) const;
  // Launches a plain read of each chunk, of any length. The results are one std::uint64_t each, the xor of
  // the chunk's 32-bit words.
  Result<void> launch_read(CUstream stream, CUdeviceptr chunk_list, CUdeviceptr results,
                           std::uint32_t count) const;
  Result<void> launch_copy(CUstream stream, CUdeviceptr copy_list, std::uint32_t count) const;

 private:
  TrackKernels(const Device& device, std::shared_ptr<const FingerprintParams> params, Module module)
      : device_(device), params_(std::move(params)), module_(std::move(module)) {}
  const Device& device_;
  std::shared_ptr<const FingerprintParams> params_;
  Module module_;
  CUfunction fingerprint_ = nullptr;
  std::uint32_t max_blocks_ = 1;  // the maximum number of thread blocks in a launch of fingerprint_
  CUfunction read_ = nullptr;
  CUfunction copy_ = nullptr;
  CUdeviceptr tables_ = 0;
};

// A batch of up to `capacity` chunks in one launch, with its own pinned and device lists. launch() only
// enqueues (upload, kernel, download, event). A second launch() is refused until ready() or wait() has
// reported the end of the first.
class FingerprintBatch {
 public:
  static Result<std::unique_ptr<FingerprintBatch>> create(std::shared_ptr<const TrackKernels> kernels,
                                                          std::uint32_t capacity);

  // Launches the batch. The last launch of `after`, on any stream, ends before the kernel begins; the upload
  // does not wait for it.
  Result<void> launch(CUstream stream, std::span<const ChunkRange> chunks,
                      const FingerprintBatch* after = nullptr);
  [[nodiscard]] bool busy() const noexcept { return list_.busy(); }
  Result<bool> ready() { return list_.ready(); }  // returns whether the last launch is done; never blocks
  Result<void> wait() { return list_.wait(); }
  // Returns the fingerprints of the last launch's chunks, in their order. They are valid until the next
  // launch.
  [[nodiscard]] std::span<const Fingerprint> results() const noexcept;
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }

 private:
  FingerprintBatch(std::shared_ptr<const TrackKernels> kernels, std::uint32_t capacity, DeviceList list)
      : kernels_(std::move(kernels)), capacity_(capacity), list_(std::move(list)) {}
  std::shared_ptr<const TrackKernels> kernels_;
  std::uint32_t capacity_;
  std::uint32_t count_ = 0;
  DeviceList list_;  // the list of capacity_ chunks, followed by capacity_ results
};

// A list of up to `capacity` device-to-device copies and zero orders in one launch: gather (chunks ->
// contiguous staging) and scatter (staging -> chunks). launch() only enqueues; the list may be reused when
// ready().
class CopyList {
 public:
  static Result<std::unique_ptr<CopyList>> create(std::shared_ptr<const TrackKernels> kernels,
                                                  std::uint32_t capacity);

  Result<void> launch(CUstream stream, std::span<const CopyRange> copies);
  [[nodiscard]] bool busy() const noexcept { return list_.busy(); }
  Result<bool> ready() { return list_.ready(); }
  Result<void> wait() { return list_.wait(); }

 private:
  CopyList(std::shared_ptr<const TrackKernels> kernels, std::uint32_t capacity, DeviceList list)
      : kernels_(std::move(kernels)), capacity_(capacity), list_(std::move(list)) {}
  std::shared_ptr<const TrackKernels> kernels_;
  std::uint32_t capacity_;
  DeviceList list_;
};

struct ScannerOptions {
  // The maximum work of one launch. With a duty below 1 it is reduced to the size that takes kLaunchTarget,
  // as measured on earlier slices (at least one chunk). Such a launch is short enough not to delay the job's
  // kernels.
  std::uint64_t slice_bytes = std::uint64_t{2} << 30;
  std::uint32_t slice_chunks = 8192;
  // The number of slices in flight if slices are shorter than kShortSlice; otherwise two. Each has its own
  // stream, so that lists are copied while another slice is computed.
  std::uint32_t slices_in_flight = 4;
  // The share of the time that the scan's kernels may use while the job runs, in (0, 1]; 1 at the barrier.
  double duty = 1.0;
};

class Scanner {
 public:
  static Result<std::unique_ptr<Scanner>> create(std::shared_ptr<const TrackKernels> kernels,
                                                 const ScannerOptions& options);
  ~Scanner();
  Scanner(const Scanner&) = delete;
  Scanner& operator=(const Scanner&) = delete;

  // Scans the chunks and blocks until the scan has ended; out.size() == chunks.size(). cancel() from another
  // thread ends the scan with kAborted after the running slices.
  Result<void> scan(std::span<const ChunkRange> chunks, std::span<Fingerprint> out);
  // Receives each finished slice at once, so that copying starts while the scan still runs: on_slice(first
  // chunk index, fingerprints).
  using SliceHandler = std::function<Result<void>(std::size_t first, std::span<const Fingerprint>)>;
  Result<void> scan(std::span<const ChunkRange> chunks, const SliceHandler& on_slice);

  // Sets the duty, on any thread. It applies from the next slice on, and to the rest of a pause.
  void set_duty(double duty);
  // Returns the times, on any thread. busy <= duty * (busy + paused) holds after each scan with an unchanged
  // duty that was not canceled.
  [[nodiscard]] ScanTimes times() const;
  // Cancels the running scan, on any thread. Also ends all later scans until resume().
  void cancel();
  void resume();

 private:
  Scanner(std::shared_ptr<const TrackKernels> kernels, const ScannerOptions& options)
      : kernels_(std::move(kernels)), options_(options), pace_(options.slice_bytes), duty_(options.duty) {}
  [[nodiscard]] std::size_t slice_length(std::span<const ChunkRange> chunks, double duty) const noexcept;
  // Returns the number of slices that may be on the device at the same time.
  [[nodiscard]] std::size_t max_in_flight(double duty) const noexcept;
  Result<void> launch_slice(std::size_t slice, std::span<const ChunkRange> chunks);
  Result<double> check_cancelled();   // returns the duty of the next slice, or kAborted
  void pause_scan_after(Nanos busy);  // pauses to keep the duty cycle; ends early when canceled
  void drain() noexcept;              // waits for all launches after an error: no launch may outlive the call
  std::shared_ptr<const TrackKernels> kernels_;
  ScannerOptions options_;
  ScanPace pace_;
  mutable std::mutex mutex_;  // guards duty_, cancelled_, times_
  std::condition_variable changed_;
  double duty_;
  bool cancelled_ = false;
  ScanTimes times_;
  std::vector<CUstream> streams_;                           // one stream for each batch
  std::vector<std::unique_ptr<FingerprintBatch>> batches_;  // the batches, used in turn
};

}  // namespace ckpt::track
