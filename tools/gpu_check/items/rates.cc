// SPDX-License-Identifier: Apache-2.0
// The item rates: the rates at which the device code fingerprints and gathers, compared with the driver's
// plain copies and fills of the same memory. It also checks that the fingerprints equal those of the host's
// implementation.
#include <algorithm>
#include <functional>
#include <random>
#include <span>

#include "libckpt/datapath/engine/source/sender.h"
#include "libckpt/datapath/track/read_rate.h"
#include "libckpt/datapath/track/scanner.h"
#include "tools/gpu_check/item.h"

namespace ckpt::gpu_check {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kMaxBytes = 8192 * kMiB;
constexpr std::uint64_t kSmallBytes = 256 * kMiB;
constexpr std::uint64_t kHostBytes = 256 * kMiB;
constexpr std::uint32_t kGatherChunks = 4096;
constexpr std::size_t kComparedChunks = 64;
constexpr int kRuns = 7;

class DeviceBuffer {
 public:
  static Result<DeviceBuffer> create(const DriverApi& api, std::uint64_t bytes) {
    DeviceBuffer buffer(api);
    CKPT_CUDA_TRY(api, cuMemAlloc_v2(&buffer.address_, bytes));
    return buffer;
  }
  ~DeviceBuffer() {
    if (address_ != 0) api_.cuMemFree_v2(address_);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : api_(other.api_), address_(std::exchange(other.address_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  [[nodiscard]] CUdeviceptr address() const noexcept { return address_; }

 private:
  explicit DeviceBuffer(const DriverApi& api) : api_(api) {}
  const DriverApi& api_;
  CUdeviceptr address_ = 0;
};

class PinnedBuffer {
 public:
  static Result<PinnedBuffer> create(const DriverApi& api, std::uint64_t bytes) {
    PinnedBuffer buffer(api);
    CKPT_CUDA_TRY(api, cuMemHostAlloc(&buffer.memory_, bytes, 0));
    return buffer;
  }
  ~PinnedBuffer() {
    if (memory_ != nullptr) api_.cuMemFreeHost(memory_);
  }
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : api_(other.api_), memory_(std::exchange(other.memory_, nullptr)) {}
  PinnedBuffer& operator=(PinnedBuffer&&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(memory_); }

 private:
  explicit PinnedBuffer(const DriverApi& api) : api_(api) {}
  const DriverApi& api_;
  void* memory_ = nullptr;
};

// Returns the median rate in bytes per second of kRuns runs, after one run that is not counted.
Result<double> rate_of(std::uint64_t bytes, const std::function<Result<void>()>& work) {
  CKPT_TRYV(work());
  std::vector<double> rates;
  for (int i = 0; i < kRuns; i++) {
    const Nanos begin = now_ns();
    CKPT_TRYV(work());
    rates.push_back(static_cast<double>(bytes) * 1e9 /
                    static_cast<double>(std::max<Nanos>(1, now_ns() - begin)));
  }
  std::nth_element(rates.begin(), rates.begin() + kRuns / 2, rates.end());
  return rates[kRuns / 2];
}

class Rates {
 public:
  Rates(const DriverApi& api, std::shared_ptr<const track::TrackKernels> kernels, Outcome& outcome,
        std::uint64_t bytes, const DeviceBuffer& memory, const PinnedBuffer& host)
      : api_(api),
        kernels_(std::move(kernels)),
        outcome_(outcome),
        bytes_(bytes),
        half_(bytes / 2),
        memory_(memory.address()),
        host_(host.data()) {
    track::append_chunks(memory_, bytes_, engine::kDefaultChunkBytes, chunks_);
  }

  Result<void> fill();
  Result<void> host_copies();
  Result<void> device_copy();
  Result<void> device_read();
  Result<void> fingerprint();
  Result<void> gather();

 private:
  Result<void> note(const char* name, std::uint64_t bytes, const std::function<Result<void>()>& work);
  Result<void> compare_fingerprints(std::span<const track::Fingerprint> found);
  [[nodiscard]] std::uint64_t host_bytes() const { return std::min(bytes_, kHostBytes); }

  const DriverApi& api_;
  std::shared_ptr<const track::TrackKernels> kernels_;
  Outcome& outcome_;
  std::uint64_t bytes_;
  std::uint64_t half_;
  CUdeviceptr memory_;
  std::byte* host_;
  std::vector<track::ChunkRange> chunks_;
};

Result<void> Rates::note(const char* name, std::uint64_t bytes, const std::function<Result<void>()>& work) {
  CKPT_TRY(rate, rate_of(bytes, work));
  outcome_.figures[name] = rate;
  return ok();
}

Result<void> Rates::fill() {
  std::mt19937_64 random(11);
  auto* words = reinterpret_cast<std::uint64_t*>(host_);
  for (std::uint64_t i = 0; i < host_bytes() / sizeof *words; i++) words[i] = random();
  for (std::uint64_t at = 0; at < bytes_; at += host_bytes()) {
    CKPT_CUDA_TRY(api_, cuMemcpyHtoD_v2(memory_ + at, host_, std::min(host_bytes(), bytes_ - at)));
  }
  return ok();
}

Result<void> Rates::host_copies() {
  CKPT_TRYV(note("host_to_device", host_bytes(), [&]() -> Result<void> {
    CKPT_CUDA_TRY(api_, cuMemcpyHtoD_v2(memory_, host_, host_bytes()));
    return ok();
  }));
  return note("device_to_host", host_bytes(), [&]() -> Result<void> {
    CKPT_CUDA_TRY(api_, cuMemcpyDtoH_v2(host_, memory_, host_bytes()));
    return ok();
  });
}

// Measures the rate in bytes copied. The memory's traffic is twice that.
Result<void> Rates::device_copy() {
  return note("device_copy", half_, [&]() -> Result<void> {
    CKPT_CUDA_TRY(api_, cuMemcpyDtoD_v2(memory_ + half_, memory_, half_));
    CKPT_CUDA_TRY(api_, cuCtxSynchronize());
    return ok();
  });
}

Result<void> Rates::device_read() {
  std::vector<double> rates;
  for (int i = 0; i < kRuns; i++) {
    CKPT_TRY(rate, track::measure_read_rate(*kernels_, chunks_, bytes_));
    rates.push_back(static_cast<double>(rate));
  }
  std::nth_element(rates.begin(), rates.begin() + kRuns / 2, rates.end());
  outcome_.figures["device_read"] = rates[kRuns / 2];
  return ok();
}

Result<void> Rates::fingerprint() {
  CKPT_TRY(scanner, track::Scanner::create(kernels_, track::ScannerOptions{}));
  std::vector<track::Fingerprint> found(chunks_.size());
  CKPT_TRYV(note("fingerprint", bytes_, [&] { return scanner->scan(chunks_, found); }));
  return compare_fingerprints(found);
}

Result<void> Rates::compare_fingerprints(std::span<const track::Fingerprint> found) {
  std::size_t wrong = 0;
  const std::size_t compared = std::min(kComparedChunks, chunks_.size());
  for (std::size_t i = 0; i < compared; i++) {
    const std::size_t at = i * (chunks_.size() / compared);
    CKPT_CUDA_TRY(api_, cuMemcpyDtoH_v2(host_, chunks_[at].address, chunks_[at].bytes));
    wrong += track::fingerprint(kernels_->params(), {host_, chunks_[at].bytes}) != found[at];
  }
  outcome_.add(
      "fingerprints as on the host", wrong == 0 ? Status::kPassed : Status::kFailed,
      wrong == 0 ? "" : std::to_string(wrong) + " of " + std::to_string(compared) + " chunks differ");
  return ok();
}

// Packs every second chunk of the lower half into the upper half, as a round does with dirty chunks.
Result<void> Rates::gather() {
  std::vector<track::CopyRange> copies;
  CUdeviceptr target = memory_ + half_;
  for (std::size_t i = 0; i < chunks_.size() / 2 && copies.size() < kGatherChunks; i += 2) {
    copies.push_back({target, chunks_[i].address, chunks_[i].bytes});
    target += chunks_[i].bytes;
  }
  const std::uint64_t bytes = target - memory_ - half_;
  CKPT_TRY(list, track::CopyList::create(kernels_, kGatherChunks));
  CKPT_TRYV(note("gather", bytes, [&]() -> Result<void> {
    CKPT_TRYV(list->launch(nullptr, copies));
    return list->wait();
  }));
  const track::CopyRange& last = copies.back();
  CKPT_CUDA_TRY(api_, cuMemcpyDtoH_v2(host_, last.source, last.bytes));
  CKPT_CUDA_TRY(api_, cuMemcpyDtoH_v2(host_ + last.bytes, last.target, last.bytes));
  const bool equal = std::equal(host_, host_ + last.bytes, host_ + last.bytes);
  outcome_.add("gathered bytes", equal ? Status::kPassed : Status::kFailed, equal ? "" : "they differ");
  return ok();
}

track::FingerprintKey fresh_key() {
  std::random_device source;
  track::FingerprintKey key;
  for (std::byte& byte : key) byte = static_cast<std::byte>(source());
  return key;
}

}  // namespace

Result<Outcome> check_rates(const Setting& setting) {
  Outcome outcome;
  CKPT_TRY(device, Device::open(0));
  const ContextScope scope(device);
  const DriverApi& api = device.api();
  std::size_t free_bytes = 0, total = 0;
  CKPT_CUDA_TRY(api, cuMemGetInfo_v2(&free_bytes, &total));
  std::uint64_t bytes =
      setting.quick || setting.software ? kSmallBytes : std::min<std::uint64_t>(kMaxBytes, free_bytes / 2);
  bytes -= bytes % (4 * kMiB);
  if (bytes == 0) return Error(ErrorCode::kOutOfMemory, "The GPU has no free memory");
  CKPT_TRY(kernels,
           track::TrackKernels::create(
               device, track::FingerprintParams::expand(fresh_key(), track::FingerprintPurpose::kChunks)));
  CKPT_TRY(memory, DeviceBuffer::create(api, bytes));
  CKPT_TRY(host, PinnedBuffer::create(api, std::min(bytes, kHostBytes)));
  Rates rates(api, kernels, outcome, bytes, memory, host);
  outcome.figures["bytes"] = bytes;
  CKPT_TRYV(rates.fill());
  CKPT_TRYV(rates.host_copies());
  CKPT_TRYV(rates.device_copy());
  CKPT_TRYV(rates.fill());
  CKPT_TRYV(rates.device_read());
  CKPT_TRYV(rates.fingerprint());
  CKPT_TRYV(rates.gather());
  const auto figure = [&](const char* name) { return outcome.figures[name].get<double>(); };
  outcome.figures["fingerprint_to_read"] = figure("fingerprint") / figure("device_read");
  outcome.figures["gather_to_copy"] = figure("gather") / figure("device_copy");
  outcome.sum_up();
  return outcome;
}

}  // namespace ckpt::gpu_check
