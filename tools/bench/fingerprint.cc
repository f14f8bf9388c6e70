// SPDX-License-Identifier: Apache-2.0
// Section "fingerprint": DESIGN §5's goal is that a fingerprint costs what a plain read of the same memory costs.
#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "libckpt/base/random.h"
#include "libckpt/engine/sender.h"
#include "libckpt/track/read_rate.h"
#include "libckpt/track/scanner.h"
#include "tools/bench/bench.h"
#include "tools/bench/device_buffer.h"
#include "tools/bench/host_read.h"
#include "tools/bench/measure.h"
#include "tools/common/units.h"

namespace ckpt::bench {
namespace {

constexpr double kGoal = 0.85;
constexpr std::size_t kCacheBytes = std::size_t{512} << 10;
constexpr std::uint64_t kMostScanBytes = std::uint64_t{16} << 30;
constexpr std::uint64_t kLeastScanUnit = std::uint64_t{64} << 20;
constexpr std::size_t kChunkBytes = engine::kDefaultChunkBytes;

volatile std::uint64_t sink;  // NOLINT: what was computed is used

// Runs `work(thread)` on so many threads at once; the processor time of the one that took longest.
template <class Work>
Nanos run_threads(unsigned threads, const Work& work) {
  std::vector<Nanos> times(threads);
  const auto timed = [&](unsigned thread) {
    const Nanos start = thread_cpu_ns();
    work(thread);
    times[thread] = thread_cpu_ns() - start;
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(timed, i);
  timed(0);
  for (std::thread& other : others) other.join();
  return *std::max_element(times.begin(), times.end());
}

Result<std::shared_ptr<const track::FingerprintParams>> fresh_params() {
  track::FingerprintKey key{};
  CKPT_TRYV(ckpt::fill_random(key));
  return track::FingerprintParams::expand(key, track::FingerprintPurpose::kChunks);
}

// ---- host memory

struct HostCase {
  const char* name;
  std::size_t bytes;   // of memory, all threads together
  std::size_t passes;  // over it, in one run
  unsigned threads;
};

class HostBench {
 public:
  HostBench(std::span<const std::byte> memory, const track::FingerprintParams& params)
      : memory_(memory), params_(params) {}

  Side reading(const HostCase& what, const HostRead& read) const {
    return [this, what, &read]() -> Result<double> {
      return run(
          what, [&read](std::span<const std::byte> part) { sink = read.function(part.data(), part.size()); });
    };
  }
  Side fingerprinting(const HostCase& what) const {
    return [this, what]() -> Result<double> {
      return run(what, [this](std::span<const std::byte> part) {
        for (std::size_t at = 0; at < part.size(); at += kChunkBytes)
          sink = track::fingerprint(params_, part.subspan(at, std::min(kChunkBytes, part.size() - at))).lo;
      });
    };
  }

 private:
  template <class Work>
  double run(const HostCase& what, const Work& work) const {
    const std::size_t part = what.bytes / what.threads;
    const Nanos nanos = run_threads(what.threads, [&](unsigned thread) {
      for (std::size_t pass = 0; pass < what.passes; ++pass) work(memory_.subspan(thread * part, part));
    });
    return rate_of(part * what.threads * what.passes, nanos);
  }
  std::span<const std::byte> memory_;
  const track::FingerprintParams& params_;
};

// Every way to read and the fingerprint, in turn; the fastest way by its median is what the fingerprint is held against.
Result<void> measure_host(const HostBench& bench, const HostCase& what, unsigned pairs, bool goal,
                          Section& section) {
  std::vector<Side> sides;
  for (const HostRead& read : host_reads()) sides.push_back(bench.reading(what, read));
  sides.push_back(bench.fingerprinting(what));
  CKPT_TRY(runs, interleave(pairs, sides));
  std::size_t best = 0;
  for (std::size_t i = 1; i < host_reads().size(); ++i)
    if (spread_of(runs[i]).median > spread_of(runs[best]).median) best = i;
  const Spread ratio = spread_of(ratios_of(runs.back(), runs[best]));
  section.add_row(std::string(what.name) + ": plain read (" + host_reads()[best].name + ")",
                  {spread_of(runs[best])});
  section.add_row(std::string(what.name) + ": fingerprint", {spread_of(runs.back()), ratio});
  if (goal)
    section.add_goal(std::string(what.name) + ", fingerprint / plain read", ratio.median, Relation::kAtLeast,
                     kGoal);
  return ok();
}

Result<void> measure_host_memory(const BenchOptions& options, Section& section) {
  if (host_reads().empty()) {
    section.add_note("host memory not measured: this processor has no AVX2");
    return ok();
  }
  CKPT_TRY(params, fresh_params());
  const std::size_t bytes = std::min<std::uint64_t>(options.bytes, std::uint64_t{512} << 20);
  std::vector<std::byte> memory(bytes);
  fill_random(std::span(memory), 1);
  const HostBench bench(memory, *params);
  CKPT_TRYV(measure_host(bench, {"host memory, one core", bytes, 1, 1}, options.pairs, true, section));
  CKPT_TRYV(measure_host(bench, {"host memory, two cores", bytes, 1, 2}, options.pairs, false, section));
  return measure_host(
      bench, {"cache (512 KiB), one core", kCacheBytes, std::max<std::size_t>(bytes / kCacheBytes, 1), 1},
      options.pairs, false, section);
}

// ---- device memory

struct DeviceScan {
  std::unique_ptr<Device> device;
  std::unique_ptr<DeviceBuffer> memory;
  std::shared_ptr<const track::TrackKernels> kernels;
  std::unique_ptr<track::Scanner> scanner;
  std::vector<track::ChunkRange> chunks;
  std::vector<track::Fingerprint> fingerprints;

  static Result<std::unique_ptr<DeviceScan>> create(int ordinal, std::uint64_t bytes) {
    auto scan = std::make_unique<DeviceScan>();
    CKPT_TRY(device, Device::open(ordinal));
    scan->device = std::make_unique<Device>(std::move(device));
    CKPT_TRY(memory, DeviceBuffer::create(*scan->device, bytes));
    scan->memory = std::move(memory);
    CKPT_TRY(params, fresh_params());
    CKPT_TRY(kernels, track::TrackKernels::create(*scan->device, params));
    track::ScannerOptions options;
    options.slice_bytes = engine::SenderOptions{}.scan_slice_bytes;
    CKPT_TRY(scanner, track::Scanner::create(kernels, options));
    scan->kernels = kernels;
    scan->scanner = std::move(scanner);
    track::append_chunks(scan->memory->pointer(), bytes, kChunkBytes, scan->chunks);
    scan->fingerprints.resize(scan->chunks.size());
    return scan;
  }
  // GB/s.
  Result<double> scan() {
    const Nanos start = now_ns();
    CKPT_TRYV(scanner->scan(chunks, fingerprints));
    return rate_of(memory->bytes(), now_ns() - start);
  }
  // What the device itself took, without the launches: the stricter measure.
  Result<double> read() {
    CKPT_TRY(rate, track::measure_read_rate(*kernels, chunks, memory->bytes()));
    return static_cast<double>(rate) * 1e-9;
  }
};

// All at once; the sum of their rates.
Result<double> rate_together(std::span<const std::unique_ptr<DeviceScan>> scans,
                             Result<double> (DeviceScan::*work)()) {
  std::vector<Result<double>> results(scans.size(), 0.0);
  run_threads(static_cast<unsigned>(scans.size()),
              [&](unsigned i) { results[i] = (scans[i].get()->*work)(); });
  double sum = 0;
  for (Result<double>& result : results) {
    CKPT_TRY(rate, std::move(result));
    sum += rate;
  }
  return sum;
}

// A GPU reads 1 GiB in a quarter of a millisecond, which launches would dominate: there a scan is as long as a job's would be.
Result<std::uint64_t> bytes_to_scan(const BenchOptions& options, const Facts& facts) {
  if (facts.software_driver) return options.bytes;
  CKPT_TRY(device, Device::open(0));
  const ContextScope scope(device);
  std::size_t free_bytes = 0, total_bytes = 0;
  CKPT_CUDA_TRY(device.api(), cuMemGetInfo_v2(&free_bytes, &total_bytes));
  return std::max(options.bytes, std::min(kMostScanBytes, free_bytes / 4 / kLeastScanUnit * kLeastScanUnit));
}

Result<void> measure_device_memory(const BenchOptions& options, const Facts& facts, Section& section) {
  CKPT_TRY(target, target_ordinal());
  CKPT_TRY(bytes, bytes_to_scan(options, facts));
  std::vector<std::unique_ptr<DeviceScan>> scans;
  CKPT_TRY(first, DeviceScan::create(0, bytes));
  scans.push_back(std::move(first));
  if (target != 0) {
    CKPT_TRY(second, DeviceScan::create(target, bytes));
    scans.push_back(std::move(second));
  }
  const std::span all(scans);
  for (std::size_t count = 1; count <= scans.size(); ++count) {
    const auto some = all.first(count);
    CKPT_TRY(runs, interleave(options.pairs, {[&] { return rate_together(some, &DeviceScan::read); },
                                              [&] { return rate_together(some, &DeviceScan::scan); }}));
    const std::string name = count == 1 ? "device memory" : "two devices at once";
    const Spread ratio = spread_of(ratios_of(runs[1], runs[0]));
    if (count == 1)
      section.add_note("device memory scanned: " + tools::format_bytes(static_cast<double>(bytes)));
    section.add_row(name + ": plain read", {spread_of(runs[0])});
    section.add_row(name + ": fingerprint", {spread_of(runs[1]), ratio});
    if (count == 1)
      section.add_goal(name + ", fingerprint / plain read", ratio.median, Relation::kAtLeast, kGoal);
  }
  return ok();
}

}  // namespace

Result<void> bench_fingerprint(const BenchOptions& options, Report& report) {
  Section& section = report.add_section(
      "fingerprint",
      "Fingerprints of 64 KiB chunks beside plain reads of the same "
      "memory, interleaved; the ratio is taken pair by pair; host rates are by processor time");
  section.set_columns({{"rate", "GB/s"}, {"ratio", ""}});
  CKPT_TRYV(measure_device_memory(options, report.facts(), section));
  return measure_host_memory(options, section);
}

}  // namespace ckpt::bench
