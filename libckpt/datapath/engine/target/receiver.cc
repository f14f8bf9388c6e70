// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/target/receiver.h"

#include <algorithm>

#include "libckpt/base/check.h"
#include "libckpt/base/machine/cores.h"

namespace ckpt::engine {
namespace {

constexpr std::uint32_t kManyLanes = 4;

// Returns `options.lanes` if set, else the number of lanes that paths, cores and free slots allow. The rest
// of the staging memory is for other migrations.
std::uint32_t lane_count(const ReceiverOptions& options, const StagingPool& staging, std::size_t coders) {
  if (options.lanes != 0) return options.lanes;
  const std::size_t slots = staging.free_slots();
  const std::uint32_t paths = std::max(options.paths, 1U);
  const std::uint32_t on_each = (default_lanes() + paths - 1) / paths;
  for (const std::uint32_t lanes : {on_each * paths, paths})
    if (lanes >= kMinLanes && coders + std::size_t{lanes} * options.window <= slots) return lanes;
  return kMinLanes;
}

}  // namespace

std::uint32_t default_lanes() noexcept {
  return usable_cores() >= kManyLanes ? kManyLanes : kMinLanes;
}

Result<std::unique_ptr<Receiver>> Receiver::create(const Device& device, StagingPool& staging,
                                                   transport::Transport& transport,
                                                   ReceiverDelegate& delegate,
                                                   const ReceiverOptions& options) {
  std::unique_ptr<Receiver> receiver(new Receiver());
  CKPT_TRY(kernels,
           track::TrackKernels::create(
               device, track::FingerprintParams::expand(options.key, track::FingerprintPurpose::kChunks)));
  receiver->core_ = std::make_unique<ReceiverCore>(
      device, options.id, track::FingerprintParams::expand(options.key, track::FingerprintPurpose::kRoot),
      delegate, options.hooks, options.max_plan_bytes, options.max_host_bytes);
  track::ScannerOptions scan;
  scan.slice_bytes = options.scan_slice_bytes;
  CKPT_TRY(scanner, track::Scanner::create(kernels, scan));
  receiver->scanner_ = std::move(scanner);
  const std::size_t threads = worker_count(options.coders);
  const std::uint32_t lanes = lane_count(options, staging, threads);
  for (std::size_t i = 0; i < threads; ++i) {
    CKPT_TRY(decoder, Decoder::create(device, staging));
    receiver->decoders_.push_back(std::move(decoder));
  }
  CKPT_TRY(workers, WorkPool::create(device, threads, std::size_t{lanes} * options.window));
  receiver->workers_ = std::move(workers);
  for (std::uint32_t i = 0; i < lanes; ++i) {
    CKPT_TRY(slots, staging.acquire(options.window));
    CKPT_TRY(lane, ReceiveLane::create(
                       i == 0 ? ReceiveLane::Place::kFirst : ReceiveLane::Place::kOther, *receiver->core_,
                       *receiver->workers_, transport, options.token, kernels, std::move(slots),
                       receiver->decoders_,
                       [raw = receiver.get()](std::uint32_t round) { return raw->begin_scan(round); }));
    receiver->lanes_.push_back(std::move(lane));
  }
  return receiver;
}

Receiver::~Receiver() {
  if (scanner_) scanner_->cancel();
  core_->hurry();
  for (const auto& lane : lanes_)
    lane->stop();  // stops before the scan thread is joined, because a lane's thread starts the scan; the
                   // lane is destroyed later, because the scan posts to a lane
  if (scan_thread_.joinable()) scan_thread_.join();
  workers_.reset();  // finishes the work on the lanes' slots
  lanes_.clear();
}

std::vector<std::string> Receiver::addresses() const {
  std::vector<std::string> addresses;
  for (const auto& lane : lanes_) addresses.push_back(lane->address());
  return addresses;
}

void Receiver::cancel(const Error& reason) {
  core_->fail(reason);
  for (const auto& lane : lanes_) lane->wake();
}

Result<void> Receiver::begin_scan(std::uint32_t round) {
  std::vector<track::ChunkRange> ranges;
  std::vector<ReceiverCore::ScanItem> items;
  CKPT_TRYV(core_->begin_verify(round, ranges, items));  // refused while a scan still reads the lists
  if (scan_thread_.joinable()) scan_thread_.join();
  ranges_ = std::move(ranges);
  items_ = std::move(items);
  scan_thread_ = std::thread([this, round] {
    if (auto scanned = scan(round); !scanned) core_->fail(scanned.error());
  });
  return ok();
}

Result<void> Receiver::scan(std::uint32_t round) {
  std::vector<AckRecord> stale;
  std::uint64_t bytes = 0;
  CKPT_CHECK(ranges_.size() == items_.size(), "ENG-4: every chunk of the scan has its place");
  for (const track::ChunkRange& range : ranges_) bytes += range.bytes;
  const Nanos begin = now_ns();
  if (!ranges_.empty()) {
    CKPT_TRYV(
        scanner_->scan(ranges_, [&](std::size_t first, std::span<const track::Fingerprint> fingerprints) {
          core_->scanned(std::span(items_).subspan(first, fingerprints.size()), fingerprints, stale);
          return Result<void>(ok());
        }));
  }
  items_.clear();  // the items keep dropped regions alive
  core_->end_scan(begin, now_ns(), bytes);
  post_stale(round, stale);
  core_->wait_for_host_memory();
  LaneBuffer done(LaneMessage::kScanDone, core_->id, round);
  done.append(ClockRecord{now_ns()});
  lanes_[0]->post(done);
  return ok();
}

void Receiver::post_stale(std::uint32_t round, std::span<const AckRecord> stale) {
  while (!stale.empty()) {
    LaneBuffer message(LaneMessage::kStale, core_->id, round);
    const std::size_t count = std::min(stale.size(), kMaxChunks);
    for (const AckRecord& record : stale.first(count)) message.append(record);
    lanes_[0]->post(message);
    stale = stale.subspan(count);
  }
}

}  // namespace ckpt::engine
