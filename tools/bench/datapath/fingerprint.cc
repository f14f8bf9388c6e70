// SPDX-License-Identifier: Apache-2.0
// The section "fingerprint". Its goal is that a fingerprint takes as long as a plain read of the same memory
// (docs/design.md §5).
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "libckpt/base/random.h"
#include "libckpt/datapath/engine/source/sender.h"
#include "libckpt/datapath/track/device_list.h"
#include "libckpt/datapath/track/fingerprint_host.h"
#include "libckpt/datapath/track/read_rate.h"
#include "libckpt/datapath/track/scanner.h"
#include "tools/bench/bench.h"
#include "tools/bench/measuring/device_buffer.h"
#include "tools/bench/measuring/host_read.h"
#include "tools/bench/measuring/measure.h"
#include "tools/common/units.h"

namespace ckpt::bench {
namespace {

constexpr double kGoal = 0.85;
constexpr std::size_t kCacheBytes = std::size_t{512} << 10;
constexpr unsigned kCachePasses = 64;
// A slice is long compared with the time to start it, and short compared with changes of load on the machine.
constexpr std::size_t kHostSliceBytes = std::size_t{16} << 20;
constexpr std::uint64_t kMinHostBytes = std::uint64_t{128} << 20, kMaxHostBytes = std::uint64_t{512} << 20;
constexpr std::uint64_t kMaxScanBytes = std::uint64_t{16} << 30;
constexpr std::uint64_t kMinScanUnit = std::uint64_t{64} << 20;
constexpr std::size_t kChunkBytes = engine::kDefaultChunkBytes;

volatile std::uint64_t sink;  // NOLINT: what was computed is used

// Runs `work(thread)` on `threads` threads at the same time. Returns the processor time of the slowest
// thread.
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

// ---- Host memory ----

struct HostCase {
  const char* name;
  std::size_t bytes;        // memory of all threads together
  std::size_t slice_bytes;  // the part that one thread measures at a time
  unsigned threads;
};
using HostWork = std::function<void(std::span<const std::byte>)>;

// A benchmark of host memory. Slices alternate between two kinds of work, from one end of the memory to the
// other. So each slice has a neighbor of the other kind in time, because other programs change the
// processor's speed within milliseconds. The two kinds work on different parts, half of the memory apart. So
// the caches hold nothing of an earlier pass there.
class HostBench {
 public:
  HostBench(std::span<const std::byte> memory, const track::FingerprintParams& params)
      : memory_(memory), params_(params) {}

  static HostWork reading(const HostRead& read) {
    return [&read](std::span<const std::byte> part) { sink = read.function(part.data(), part.size()); };
  }
  // Returns work that fingerprints chunk after chunk, each with a hint of the next chunk, as a scan does.
  HostWork fingerprinting() const {
    return [this](std::span<const std::byte> part) {
      for (std::size_t at = 0; at < part.size(); at += kChunkBytes) {
        const std::byte* const next =
            part.size() - at >= 2 * kChunkBytes ? part.data() + at + kChunkBytes : nullptr;
        const std::size_t bytes = std::min(kChunkBytes, part.size() - at);
        sink = track::fingerprint_host(params_.tables(), part.data() + at, bytes, nullptr, next).lo;
      }
    };
  }
  // Measures the rates of both kinds of work, slice by slice, in `passes` passes over the memory. The kind of
  // work that comes first alternates.
  std::array<Runs, 2> alternate(const HostCase& what, unsigned passes,
                                const std::array<HostWork, 2>& works) const {
    const std::size_t slices = what.bytes / what.threads / what.slice_bytes;
    std::array<Runs, 2> runs;
    for (unsigned pass = 0; pass < passes; ++pass)
      for (std::size_t slice = 0; slice < slices; ++slice)
        for (std::size_t turn = 0; turn < 2; ++turn) {
          const std::size_t who = (slice + pass + turn) % 2;
          runs[who].push_back(run(what, (slice + who * (slices / 2)) % slices, works[who]));
        }
    return runs;
  }

 private:
  double run(const HostCase& what, std::size_t slice, const HostWork& work) const {
    const std::size_t part = what.bytes / what.threads;
    const Nanos nanos = run_threads(what.threads, [&](unsigned thread) {
      work(memory_.subspan(thread * part + slice * what.slice_bytes, what.slice_bytes));
    });
    return rate_of(what.slice_bytes * what.threads, nanos);
  }
  std::span<const std::byte> memory_;
  const track::FingerprintParams& params_;
};

// Finds the fastest read method by running each method alternately with the fingerprint. Then the function
// measures that method and the fingerprint again.
Result<void> measure_host(const HostBench& bench, const HostCase& what, unsigned pairs, bool goal,
                          Section& section) {
  const HostRead* best = nullptr;
  double best_rate = 0;
  for (const HostRead& read : host_reads()) {
    const auto runs = bench.alternate(what, 1, {HostBench::reading(read), bench.fingerprinting()});
    const double rate = spread_of(runs[0]).median;
    if (rate > best_rate) best = &read;
    best_rate = std::max(rate, best_rate);
  }
  if (best == nullptr) return ok();
  const auto runs = bench.alternate(what, pairs, {HostBench::reading(*best), bench.fingerprinting()});
  const Spread ratio = spread_of(ratios_of(runs[1], runs[0]));
  section.add_row(std::string(what.name) + ": plain read (" + best->name + ")", {spread_of(runs[0])});
  section.add_row(std::string(what.name) + ": fingerprint", {spread_of(runs[1]), ratio});
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
  const std::size_t bytes = std::clamp<std::uint64_t>(options.bytes, kMinHostBytes, kMaxHostBytes) /
                            (2 * kHostSliceBytes) * (2 * kHostSliceBytes);
  const HostMemory memory(bytes);
  if (memory.bytes().empty()) return Error(ErrorCode::kOutOfMemory, "There is no memory to read");
  fill_random(memory.bytes(), 1);
  const HostBench bench(memory.bytes(), *params);
  CKPT_TRYV(measure_host(bench, {"host memory, one core", bytes, kHostSliceBytes, 1}, options.pairs, true,
                         section));
  CKPT_TRYV(measure_host(bench, {"host memory, two cores", bytes, kHostSliceBytes, 2}, options.pairs, false,
                         section));
  const HostBench cached(memory.bytes().first(kCacheBytes), *params);
  CKPT_TRYV(measure_host(cached, {"cache (512 KiB), one core", kCacheBytes, kCacheBytes, 1},
                         options.pairs * kCachePasses, false, section));
  section.add_note("host memory: slices of " + tools::format_bytes(static_cast<double>(kHostSliceBytes)) +
                   " are measured alternately, each on another half of the memory; each ratio compares two "
                   "successive slices");
  return ok();
}

// ---- Device memory ----

// A method of scanning: as an engine does it, and variants that show where its time is spent.
struct ScanWay {
  const char* name;
  std::uint64_t slice_bytes;
  std::uint32_t slices_in_flight;
};
constexpr ScanWay kScanWays[] = {
    {"fingerprint", engine::SenderOptions{}.scan_slice_bytes, track::ScannerOptions{}.slices_in_flight},
    {"fingerprint, slices of 1 GiB", std::uint64_t{1} << 30, track::ScannerOptions{}.slices_in_flight},
    {"fingerprint, one slice at a time", engine::SenderOptions{}.scan_slice_bytes, 1},
};
constexpr std::uint32_t kSliceChunks = 16384;
constexpr std::size_t kKernelChunks = 8192;

struct DeviceScan {
  std::unique_ptr<Device> device;
  std::unique_ptr<DeviceBuffer> memory;
  std::shared_ptr<const track::TrackKernels> kernels;
  std::vector<std::unique_ptr<track::Scanner>> scanners;  // one scanner per method in kScanWays
  std::unique_ptr<track::DeviceList> list;                // chunks, and later results, of one launch
  std::unique_ptr<BenchStream> stream;
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
    for (const ScanWay& way : kScanWays) {
      track::ScannerOptions options;
      options.slice_bytes = way.slice_bytes;
      options.slices_in_flight = way.slices_in_flight;
      options.slice_chunks = kSliceChunks;
      CKPT_TRY(scanner, track::Scanner::create(kernels, options));
      scan->scanners.push_back(std::move(scanner));
    }
    CKPT_TRY(list, track::DeviceList::create(*scan->device, kKernelChunks * (sizeof(track::ChunkRange) +
                                                                             sizeof(track::Fingerprint))));
    scan->list = std::make_unique<track::DeviceList>(std::move(list));
    CKPT_TRY(stream, BenchStream::create(*scan->device));
    scan->stream = std::move(stream);
    scan->kernels = kernels;
    track::append_chunks(scan->memory->pointer(), bytes, kChunkBytes, scan->chunks);
    scan->fingerprints.resize(scan->chunks.size());
    return scan;
  }
  // Scans with the method kScanWays[way]. Returns the scan rate in GB/s.
  Result<double> scan_by(std::size_t way) {
    const Nanos start = now_ns();
    CKPT_TRYV(scanners[way]->scan(chunks, fingerprints));
    return rate_of(memory->bytes(), now_ns() - start);
  }
  Result<double> scan() { return scan_by(0); }
  // Returns the rate of the kernel alone in GB/s, without the fixed time of a launch. The plain read is
  // measured in the same way.
  Result<double> kernel() {
    const std::span some = std::span(chunks).first(std::min(chunks.size(), kKernelChunks));
    const ContextScope scope(*device);
    std::memcpy(list->host(), some.data(), some.size_bytes());
    CKPT_TRYV(list->upload(stream->get(), 0, some.size_bytes()));
    CKPT_TRYV(stream->synchronize());
    CKPT_TRY(single, launch(1));
    CKPT_TRY(all, launch(some.size()));
    return rate_of((some.size() - 1) * kChunkBytes, std::max<Nanos>(all - single, 1));
  }
  Result<Nanos> launch(std::size_t count) {
    const Nanos start = now_ns();
    CKPT_TRYV(kernels->launch_fingerprint(stream->get(), list->device_address(),
                                          list->device_address() + kKernelChunks * sizeof(track::ChunkRange),
                                          static_cast<std::uint32_t>(count)));
    CKPT_TRYV(stream->synchronize());
    return now_ns() - start;
  }
  // Returns the rate of plain reads in GB/s, by the device's own time and without the launches. This is the
  // stricter measure.
  Result<double> read() {
    CKPT_TRY(rate, track::measure_read_rate(*kernels, chunks, memory->bytes()));
    return static_cast<double>(rate) * 1e-9;
  }
};

// Runs the work on all devices at the same time. Returns the sum of their rates.
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

// Returns the size of a scan. A GPU reads 1 GiB in a quarter of a millisecond, which launches would dominate.
// On a GPU a scan is therefore as large as a job's.
Result<std::uint64_t> bytes_to_scan(const BenchOptions& options, const Facts& facts) {
  if (facts.software_driver) return options.bytes;
  CKPT_TRY(device, Device::open(0));
  const ContextScope scope(device);
  std::size_t free_bytes = 0, total_bytes = 0;
  CKPT_CUDA_TRY(device.api(), cuMemGetInfo_v2(&free_bytes, &total_bytes));
  return std::max(options.bytes, std::min(kMaxScanBytes, free_bytes / 4 / kMinScanUnit * kMinScanUnit));
}

// Returns the number of launches in one scan, and the duration of each launch in microseconds. Returns no
// cells if no launch was measured.
std::vector<Cell> launches_of(const DeviceScan& scan, std::size_t way, unsigned scans, const Spread& rate) {
  const double launches = static_cast<double>(scan.scanners[way]->times().launches) / scans;
  if (launches == 0 || rate.median == 0) return {};
  return {single(launches),
          single(static_cast<double>(scan.memory->bytes()) / rate.median / launches * 1e-3)};
}

// Measures every scan method on one device, in turns with the plain read and with the kernel alone.
Result<void> measure_one_device(const BenchOptions& options, DeviceScan& scan, Section& section) {
  std::vector<Side> sides{[&scan] { return scan.read(); }};
  for (std::size_t way = 0; way < std::size(kScanWays); ++way)
    sides.emplace_back([&scan, way] { return scan.scan_by(way); });
  sides.emplace_back([&scan] { return scan.kernel(); });
  CKPT_TRY(runs, interleave(options.pairs, sides));
  section.add_note("device memory scanned: " +
                   tools::format_bytes(static_cast<double>(scan.memory->bytes())));
  section.add_row("device memory: plain read", {spread_of(runs[0])});
  for (std::size_t way = 0; way < std::size(kScanWays); ++way) {
    const Spread rate = spread_of(runs[way + 1]);
    std::vector<Cell> cells{rate, spread_of(ratios_of(runs[way + 1], runs[0]))};
    const std::vector<Cell> launches = launches_of(scan, way, options.pairs + 1, rate);
    cells.insert(cells.end(), launches.begin(), launches.end());
    section.add_row(std::string("device memory: ") + kScanWays[way].name, std::move(cells));
  }
  section.add_row("device memory: fingerprint, its kernel alone",
                  {spread_of(runs.back()), spread_of(ratios_of(runs.back(), runs[0]))});
  section.add_goal("device memory, fingerprint / plain read", spread_of(ratios_of(runs[1], runs[0])).median,
                   Relation::kAtLeast, kGoal);
  return ok();
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
  CKPT_TRYV(measure_one_device(options, *scans.front(), section));
  if (scans.size() == 1) return ok();
  const std::span<const std::unique_ptr<DeviceScan>> all(scans);
  CKPT_TRY(runs, interleave(options.pairs, {[&] { return rate_together(all, &DeviceScan::read); },
                                            [&] { return rate_together(all, &DeviceScan::scan); }}));
  section.add_row("two devices at once: plain read", {spread_of(runs[0])});
  section.add_row("two devices at once: fingerprint",
                  {spread_of(runs[1]), spread_of(ratios_of(runs[1], runs[0]))});
  return ok();
}

}  // namespace

Result<void> bench_fingerprint(const BenchOptions& options, Report& report) {
  Section& section =
      report.add_section("fingerprint",
                         "Fingerprints of 64 KiB chunks compared with plain reads of the same memory, "
                         "interleaved; each pair gives one ratio; host rates are by processor time");
  section.set_columns({{"rate", "GB/s"}, {"ratio", ""}, {"launches", ""}, {"a launch", "us"}});
  CKPT_TRYV(measure_device_memory(options, report.facts(), section));
  return measure_host_memory(options, section);
}

}  // namespace ckpt::bench
