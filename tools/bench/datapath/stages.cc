// SPDX-License-Identifier: Apache-2.0
// The section "stages" measures each stage of a round alone. A stage's rate per core is bytes over the
// processor time of all participating processes (including a software device). So no pipeline of these stages
// can exceed cores / sum(1 / rate per core) on this machine.
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "libckpt/base/random.h"
#include "libckpt/datapath/engine/shared/staging.h"
#include "libckpt/datapath/engine/source/sender.h"
#include "libckpt/datapath/engine/target/receiver.h"
#include "libckpt/datapath/track/scanner.h"
#include "tools/bench/bench.h"
#include "tools/bench/datapath/stages.h"
#include "tools/bench/datapath/streams.h"
#include "tools/bench/measuring/device_buffer.h"
#include "tools/bench/measuring/measure.h"

namespace ckpt::bench {
namespace {

constexpr std::size_t kChunkBytes = engine::kDefaultChunkBytes;
constexpr std::size_t kStagingBytes = std::size_t{128} << 20;  // the size of the staging ring, which is
                                                               // larger than the caches, as in a round

}  // namespace

class StageWork {
 public:
  static Result<std::unique_ptr<StageWork>> create(const BenchOptions& options) {
    CKPT_TRY(device, Device::open(0));
    auto bench = std::make_unique<StageWork>(std::move(device));
    CKPT_TRY(memory, DeviceBuffer::create(bench->device_, options.bytes));
    bench->memory_ = std::move(memory);
    CKPT_TRYV(bench->memory_->fill_random(3));
    CKPT_TRY(staging, PinnedBuffer::create(bench->device_, kStagingBytes));
    bench->staging_ = std::move(staging);
    CKPT_TRY(stream, BenchStream::create(bench->device_));
    bench->stream_ = std::move(stream);
    track::FingerprintKey key{};
    CKPT_TRYV(ckpt::fill_random(key));
    bench->params_ = track::FingerprintParams::expand(key, track::FingerprintPurpose::kChunks);
    CKPT_TRY(kernels, track::TrackKernels::create(bench->device_, bench->params_));
    track::ScannerOptions scan;
    scan.slice_bytes = engine::SenderOptions{}.scan_slice_bytes;
    CKPT_TRY(scanner, track::Scanner::create(kernels, scan));
    bench->scanner_ = std::move(scanner);
    CKPT_TRY(batch, track::FingerprintBatch::create(kernels, lane_message_bytes() / kChunkBytes));
    bench->batch_ = std::move(batch);
    track::append_chunks(bench->memory_->pointer(), options.bytes, kChunkBytes, bench->chunks_);
    bench->fingerprints_.resize(bench->chunks_.size());
    bench->make_orders(options.bytes);
    CKPT_TRY(streams, ByteStreams::start(options.program, ByteStreams::Kind::kUcx));
    bench->streams_ = std::move(streams);
    CKPT_TRY(same_host_streams, ByteStreams::start(options.program, ByteStreams::Kind::kSameHost));
    bench->same_host_streams_ = std::move(same_host_streams);
    return bench;
  }
  explicit StageWork(Device device) : device_(std::move(device)) {}

  Result<void> scan() { return scanner_->scan(chunks_, fingerprints_); }
  Result<void> download(std::size_t piece) { return copy(piece, false); }
  Result<void> upload(std::size_t piece) { return copy(piece, true); }

  // Fingerprints the staged copies at their places in the ring.
  Result<void> fingerprint_staged() {
    std::uint64_t sum = 0;
    for (std::uint64_t at = 0; at < memory_->bytes(); at += kChunkBytes)
      sum +=
          track::fingerprint(*params_, staging_->bytes().subspan(at % staging_->bytes().size(), kChunkBytes))
              .lo;
    sink_ = sum;
    return ok();
  }
  // Fingerprints the chunks of each message at the place where they were written, with one launch per
  // message.
  Result<void> fingerprint_target() {
    const ContextScope scope(device_);
    const std::size_t each = lane_message_bytes() / kChunkBytes;
    for (std::size_t at = 0; at + each <= chunks_.size(); at += each) {
      CKPT_TRYV(batch_->launch(stream_->get(), std::span(chunks_).subspan(at, each)));
      CKPT_TRYV(batch_->wait());
    }
    return ok();
  }
  Result<StreamRun> transfer(Path path) {
    return (path == Path::kSameHost ? same_host_streams_ : streams_)
        ->run(engine::default_lanes(), memory_->bytes());
  }
  Result<void> finish() {
    CKPT_TRYV(same_host_streams_->finish());
    return streams_->finish();
  }

 private:
  // Creates random orders of the pieces of each size, which no prefetcher can predict.
  void make_orders(std::uint64_t bytes) {
    for (auto [order, piece] :
         {std::pair(&chunk_order_, kChunkBytes), std::pair(&run_order_, lane_message_bytes())}) {
      for (std::uint64_t at = 0; at + piece <= bytes; at += piece) order->push_back(at);
      std::shuffle(order->begin(), order->end(), std::mt19937_64(5));
    }
  }
  // Copies message by message through the ring. At most one ring of messages is enqueued.
  Result<void> copy(std::size_t piece, bool upload) {
    const ContextScope scope(device_);
    const std::vector<std::uint64_t>& order = piece == kChunkBytes ? chunk_order_ : run_order_;
    const std::size_t ring = staging_->bytes().size() / piece;
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::byte* staged = staging_->bytes().data() + i % ring * piece;
      const CUdeviceptr address = memory_->pointer() + order[i];
      if (upload)
        CKPT_CUDA_TRY(device_.api(), cuMemcpyHtoDAsync_v2(address, staged, piece, stream_->get()));
      else
        CKPT_CUDA_TRY(device_.api(), cuMemcpyDtoHAsync_v2(staged, address, piece, stream_->get()));
      if ((i + 1) % ring == 0) {
        CKPT_TRYV(stream_->synchronize());
      }
    }
    return stream_->synchronize();
  }

  Device device_;
  std::unique_ptr<DeviceBuffer> memory_;
  std::unique_ptr<PinnedBuffer> staging_;
  std::unique_ptr<BenchStream> stream_;
  std::shared_ptr<const track::FingerprintParams> params_;
  std::unique_ptr<track::Scanner> scanner_;
  std::unique_ptr<track::FingerprintBatch> batch_;
  std::unique_ptr<ByteStreams> streams_;
  std::unique_ptr<ByteStreams> same_host_streams_;
  std::vector<track::ChunkRange> chunks_;
  std::vector<track::Fingerprint> fingerprints_;
  std::vector<std::uint64_t> chunk_order_, run_order_;
  volatile std::uint64_t sink_ = 0;
};

namespace {

// Returns a function that runs `work` and returns its wall-clock time and the processor time of all
// participating processes.
std::function<Result<StreamRun>()> timed(std::function<Result<void>()> work) {
  return [work = std::move(work), meter = CpuMeter()]() mutable -> Result<StreamRun> {
    meter.restart();
    const Nanos start = now_ns();
    CKPT_TRYV(work());
    const Nanos wall = now_ns() - start;
    return StreamRun{wall, meter.elapsed()};
  };
}

}  // namespace

Result<std::unique_ptr<Stages>> Stages::create(const BenchOptions& options, unsigned cores) {
  CKPT_TRY(work, StageWork::create(options));
  return std::unique_ptr<Stages>(new Stages(std::move(work), options.bytes, cores));
}

Stages::Stages(std::unique_ptr<StageWork> work, std::uint64_t bytes, unsigned cores)
    : work_(std::move(work)), bytes_(bytes), cores_(cores) {
  StageWork& w = *work_;
  const std::vector<Path> both = {Path::kSameHost, Path::kTcp};
  stages_ = {
      {"scan", both, timed([&w] { return w.scan(); })},
      {"copy to host, a message at a time", both, timed([&w] { return w.download(lane_message_bytes()); })},
      {"copy to host, scattered 64 KiB", {}, timed([&w] { return w.download(kChunkBytes); })},
      {"fingerprint of the staged copy", both, timed([&w] { return w.fingerprint_staged(); })},
      {"announced to the peer, one machine", {Path::kSameHost}, [&w] { return w.transfer(Path::kSameHost); }},
      {"UCX over TCP, send and receive", {Path::kTcp}, [&w] { return w.transfer(Path::kTcp); }},
      {"copy to device, a message at a time", both, timed([&w] { return w.upload(lane_message_bytes()); })},
      {"copy to device, scattered 64 KiB", {}, timed([&w] { return w.upload(kChunkBytes); })},
      {"fingerprint at the target", both, timed([&w] { return w.fingerprint_target(); })}};
}

Stages::~Stages() = default;

Result<void> Stages::turn() {
  for (Stage& stage : stages_) {
    CKPT_TRY(run, stage.run());
    stage.rate.push_back(rate_of(bytes_, run.wall));
    stage.cpu_rate.push_back(rate_of(bytes_, std::max<Nanos>(run.cpu, 1)));
  }
  return ok();
}

bool Stages::Stage::counts(Path path) const {
  return std::find(of.begin(), of.end(), path) != of.end();
}

Runs Stages::bounds(Path path) const {
  Runs bounds(stages_.front().rate.size());
  for (std::size_t turn = 0; turn < bounds.size(); ++turn) {
    double seconds = 0;  // seconds of one core for one GB
    for (const Stage& stage : stages_)
      if (stage.counts(path)) seconds += 1 / stage.cpu_rate[turn];
    bounds[turn] = cores_ / seconds;
  }
  return bounds;
}

void Stages::drop_first() {
  for (Stage& stage : stages_) {
    stage.rate.erase(stage.rate.begin());
    stage.cpu_rate.erase(stage.cpu_rate.begin());
  }
}

Result<void> Stages::finish() {
  return work_->finish();
}

double Stages::seconds(Path path) const {
  double sum = 0;
  for (const Stage& stage : stages_)
    if (stage.counts(path)) sum += 1 / spread_of(stage.cpu_rate).median;
  return sum;
}

double Stages::scan_seconds() const {
  return 1 / spread_of(stages_.front().cpu_rate).median;
}

void Stages::fill(Section& section) const {
  section.set_columns({{"rate", "GB/s"}, {"rate per core", "GB/s"}, {"processor time", "s/GB"}});
  for (const Stage& stage : stages_) {
    const Spread per_core = spread_of(stage.cpu_rate);
    section.add_row(stage.name, {spread_of(stage.rate), per_core, single(1 / per_core.median)});
  }
  for (const auto& [path, name] :
       {std::pair(Path::kSameHost, "bound within a machine: cores / sum of 1 / rate per core"),
        std::pair(Path::kTcp, "bound over TCP")})
    section.add_row(name, {spread_of(bounds(path)), single(1 / seconds(path)), single(seconds(path))});
}

Section& add_stages_section(Report& report) {
  Section& section = report.add_section("stages",
                                        "Each stage of a round alone, over the same bytes: its rate, and its "
                                        "rate per core by processor time of all processes in it");
  section.add_note(
      "raw encoding has no stage of its own; the scattered copies are listed next to the runs that a first "
      "round copies");
  if (!report.facts().software_driver)
    section.add_note(
        "with a real GPU, copies and device fingerprints need no processor time except for the waiting of "
        "the host");
  return section;
}

Result<void> bench_stages(const BenchOptions& options, Report& report) {
  if (report.find_section("stages") != nullptr)
    return ok();  // the pipeline has already measured the stages
                  // in turns with its rounds
  Section& section = add_stages_section(report);
  CKPT_TRY(stages, Stages::create(options, report.facts().cores));
  for (unsigned turn = 0; turn <= options.pairs; ++turn) {
    CKPT_TRYV(stages->turn());
  }
  stages->drop_first();
  stages->fill(section);
  return stages->finish();
}

}  // namespace ckpt::bench
