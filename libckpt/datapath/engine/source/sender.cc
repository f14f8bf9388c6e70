// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/source/sender.h"

#include <algorithm>

#include "libckpt/datapath/engine/source/source_codec.h"

namespace ckpt::engine {
namespace {

constexpr std::uint32_t kCalibrationMessages = 16;                // per lane, at most
constexpr std::uint64_t kMinDrainBytes = std::uint64_t{4} << 20;  // below it a rate would be noise
constexpr Nanos kMinDrainTime = 500'000;
constexpr std::size_t kPieceChunks = 16384;
// A sample is one chunk in kSampleStride, but at most kMaxSamples, and has no result below kMinSamples. Of n
// clean samples the state may still have 3/n dirty chunks (with 95 %).
constexpr std::uint64_t kSampleStride = 16;
constexpr std::uint64_t kMaxSamples = 4096;
constexpr std::uint64_t kMinSamples = 64;
constexpr std::uint64_t kUnseen = 3;
// Pieces of a scan are short at first, so that copying starts at once, and where much is dirty, since what
// was scanned just now is copied from a cache. Elsewhere they grow: a piece has its costs, too, but what it
// finds waits for its end.
constexpr std::uint64_t kShortPieceBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kPieceGrowth = 2;
constexpr Nanos kLongPieceTime = 5'000'000;
constexpr std::uint64_t kMuchDirty = 4;  // a piece with more than one in so many of its bytes

// Spread over a region without a period that a job's writes may have, too.
std::uint64_t scramble(std::uint64_t value) {
  value = (value ^ value >> 33) * 0xff51afd7ed558ccdU;
  value = (value ^ value >> 33) * 0xc4ceb9fe1a85ec53U;
  return value ^ value >> 33;
}

}  // namespace

Result<std::unique_ptr<Sender>> Sender::create(const Device& device, StagingPool& staging,
                                               transport::Transport& transport,
                                               const SenderOptions& options) {
  if (!is_chunk_size(options.chunk_bytes) || options.message_bytes > kSlotBytes ||
      options.addresses.empty() || options.window == 0)
    return Error(ErrorCode::kInvalidArgument, "Chunks of " + std::to_string(options.chunk_bytes) +
                                                  " bytes in messages of " +
                                                  std::to_string(options.message_bytes) + ": not possible");
  std::unique_ptr<Sender> sender(new Sender(options));
  const std::uint64_t message_bytes = std::max(options.message_bytes, options.chunk_bytes);
  sender->options_.message_bytes = message_bytes;
  CKPT_TRY(kernels,
           track::TrackKernels::create(
               device, track::FingerprintParams::expand(options.key, track::FingerprintPurpose::kChunks)));
  sender->core_ = std::make_unique<SenderCore>(
      device, options.id, options.chunk_bytes, message_bytes, kernels,
      track::SentMap(track::FingerprintParams::expand(options.key, track::FingerprintPurpose::kRoot),
                     options.chunk_bytes),
      options.hooks, options.observer);
  sender->core_->limiter.set_rate(options.bandwidth);
  track::ScannerOptions scan;
  scan.slice_bytes = options.scan_slice_bytes;
  CKPT_TRY(scanner, track::Scanner::create(kernels, scan));
  sender->scanner_ = std::move(scanner);
  CKPT_TRY(final_scan, FinalScan::create(kernels, options.chunk_bytes, options.scan_slice_bytes));
  sender->final_scan_ = std::move(final_scan);
  sender->ranges_.reserve(kPieceChunks);
  CKPT_TRYV(sender->make_lanes(staging, transport));
  return sender;
}

Result<void> Sender::make_lanes(StagingPool& staging, transport::Transport& transport) {
  const std::size_t threads = worker_count(options_.coders);
  CKPT_TRY(codec,
           SourceCodec::create(options_.codec, options_.shadow_memory_bytes, core_->chunk_bytes, threads));
  core_->codec = std::move(codec);
  core_->near = options_.near;
  set_link_rate();
  CKPT_TRY(workers, WorkPool::create(core_->device, threads, options_.addresses.size() * options_.window));
  workers_ = std::move(workers);
  for (const std::string& address : options_.addresses) {
    CKPT_TRY(slots, staging.acquire(options_.window));
    CKPT_TRY(lane, SendLane::create(*core_, *workers_, transport, address, options_.token, std::move(slots)));
    lanes_.push_back(std::move(lane));
  }
  return ok();
}

Result<void> Sender::connect() {
  const std::size_t lanes = lanes_.size();
  return core_->until([lanes](const SenderCore::Events& e) { return e.open_lanes == lanes; },
                      options_.answer_timeout, "Connecting");
}

std::size_t Sender::same_host_lanes(transport::PayloadAccess least) const {
  return core_->same_host_lanes(least);
}

Sender::~Sender() {
  for (const auto& lane : lanes_) lane->stop();
  workers_.reset();  // works on the lanes' slots
  lanes_.clear();
}

void Sender::wake_lanes() {
  for (const auto& lane : lanes_) lane->wake();
}

Result<void> Sender::send_plan(std::span<const std::byte> plan) {
  core_->update([](SenderCore::Events& e) { e.plan_answer.reset(); });
  lanes_[0]->send_blob({LaneMessage::kPlan, plan, {}, 0});
  CKPT_TRYV(core_->until([](const SenderCore::Events& e) { return e.plan_answer.has_value() && e.blob_sent; },
                         options_.answer_timeout, "The plan"));
  const auto answer = *core_->events().plan_answer;
  core_->update([](SenderCore::Events& e) { e.blob_sent = false; });
  if (answer.first.code == 0) return ok();
  return Error(ErrorCode::kRefused, answer.second);
}

Result<void> Sender::add_region(TransferRegion region) {
  CKPT_TRYV(core_->add_region(std::move(region)));
  return ok();
}

void Sender::forgo_region(std::uint64_t id, std::uint64_t generation) {
  LaneBuffer message(LaneMessage::kDrop, core_->id, core_->round.load());
  message.append(DropRecord{id, generation});
  lanes_[0]->post(message);
}

void Sender::drop_region(std::uint64_t id) {
  SourceRegion* region = core_->find_region(id);
  if (region == nullptr) return;
  region->begin_drop();  // before the target: its answers for this region are void from here on
  forgo_region(id, region->get().generation);
  wake_lanes();
  region->finish_drop();
  core_->forget_region(*region);
}

Result<std::uint64_t> Sender::measure_link() {
  if (core_->limiter.rate() != 0) return core_->limiter.rate();
  core_->update([](SenderCore::Events& e) { e.calibrated = 0; });
  core_->calibrated_bytes.store(0);
  const Nanos begin = now_ns();
  for (const auto& lane : lanes_) lane->calibrate(kCalibrationMessages);
  const std::size_t lanes = lanes_.size();
  CKPT_TRYV(core_->until([lanes](const SenderCore::Events& e) { return e.calibrated == lanes; },
                         options_.answer_timeout, "Measuring the link"));
  const std::uint64_t bytes = core_->calibrated_bytes.load();
  const auto measured = static_cast<std::uint64_t>(static_cast<double>(bytes) * 1e9 /
                                                   static_cast<double>(std::max<Nanos>(now_ns() - begin, 1)));
  measured_link_.store(measured);
  set_link_rate();
  return measured;
}

// What the codecs weigh their work against.
void Sender::set_link_rate() {
  if (!core_->codec) return;
  const std::uint64_t limit = core_->limiter.rate();
  const std::uint64_t measured = measured_link_.load();
  core_->codec->set_link_rate(limit != 0 && measured != 0 ? std::min(limit, measured)
                                                          : std::max(limit, measured));
}

Result<ClockOffset> Sender::measure_clock() {
  core_->update([](SenderCore::Events& e) { e.clock.reset(); });
  lanes_[0]->measure_clock();
  CKPT_TRYV(core_->until([](const SenderCore::Events& e) { return e.clock.has_value(); },
                         options_.answer_timeout, "Comparing clocks"));
  return *core_->events().clock;
}

// A lane held the scan up from then until now.
void Sender::observe_encoding(const Drained& since) {
  if (!core_->codec) return;
  const Drained now = drained();
  core_->codec->observe(now.plain_bytes - since.plain_bytes, now.time - since.time);
}

Result<RoundReport> Sender::run_round() {
  CKPT_TRY(report, scan_and_send(false));
  core_->refresh_root();
  if (report.round == 1 && !report.cut) {
    CKPT_TRY(sampled, sample_dirty(core_->live_regions()));
    if (sampled) {
      report.sampled_dirty_bytes = sampled->dirty_bytes;
      // Copies slowed the round's own scan, if it made one.
      report.scan_ns = report.scan_ns == 0 ? sampled->scan_ns : std::min(report.scan_ns, sampled->scan_ns);
    }
  }
  return std::move(report);
}

void Sender::cut_round() {
  core_->cut.store(true);
  wake_lanes();
  core_->notify();
}

Result<RoundReport> Sender::scan_and_send(bool is_final) {
  RoundReport report;
  report.round = core_->round.fetch_add(1) + 1;
  report.begin_ns = now_ns();
  first_copy_ns_ = 0;
  found_bytes_.store(0);
  const SenderCounters& counters = core_->counters;
  const std::uint64_t sent_before = counters.sent_bytes.load();
  const std::uint64_t wire_before = counters.wire_bytes.load();
  acked_before_.store(counters.acked_bytes.load());
  const std::vector<SourceRegion*> regions = core_->live_regions();
  for (const SourceRegion* region : regions) report.state_bytes += region->get().bytes;

  scanner_->set_duty(options_.duty);
  only_sending_ = {};
  scan_time_ = held_up_time_ = 0;
  CKPT_TRYV(is_final ? scan_final(regions) : scan_all(regions));
  report.scan_end_ns = now_ns();
  report.scan_ns = scan_time_;
  const Drained drained_before = drained();
#if CKPT_WITHOUT_RULE == 2
  const bool wait_for_lanes = is_final;
#else
  const bool wait_for_lanes = true;
#endif
  if (wait_for_lanes) {
    CKPT_TRYV(
        core_->until([this](const SenderCore::Events&) { return core_->outstanding() == 0; }, 0, "A round"));
  }
  report.end_ns = now_ns();
  report.cut = !is_final && core_->cut.load();
  report.dirty_bytes = found_bytes_.load();
  report.first_copy_ns = first_copy_ns_;
  report.sent_bytes = counters.sent_bytes.load() - sent_before;
  report.wire_bytes = counters.wire_bytes.load() - wire_before;
  count_only_sending(drained_before);
  const auto time = static_cast<double>(only_sending_.time);
  if (only_sending_.wire_bytes >= kMinDrainBytes && only_sending_.time >= kMinDrainTime)
    report.drain_bytes_per_second = static_cast<double>(only_sending_.wire_bytes) * 1e9 / time;
  if (only_sending_.plain_bytes >= kMinDrainBytes && only_sending_.time >= kMinDrainTime)
    report.plain_bytes_per_second = static_cast<double>(only_sending_.plain_bytes) * 1e9 / time;
  return report;
}

Sender::Drained Sender::drained() const {
  const SenderCounters& counters = core_->counters;
  return {counters.drained_wire_bytes.load(), counters.acked_bytes.load(), now_ns()};
}

void Sender::count_only_sending(const Drained& since) {
  const Drained now = drained();
  only_sending_.wire_bytes += now.wire_bytes - since.wire_bytes;
  only_sending_.plain_bytes += now.plain_bytes - since.plain_bytes;
  only_sending_.time += now.time - since.time;
}

Result<std::optional<Sender::Sample>> Sender::sample_dirty(std::span<SourceRegion* const> regions) {
  std::uint64_t chunks = 0;
  std::uint64_t bytes = 0;
  for (const SourceRegion* region : regions) {
    chunks += region->chunks();
    bytes += region->get().bytes;
  }
  const std::uint64_t stride = std::max(kSampleStride, chunks / kMaxSamples);
  ranges_.clear();
  spans_.clear();
  for (SourceRegion* region : regions)
    for (std::uint32_t chunk = 0; chunk < region->chunks() && ranges_.size() < kPieceChunks; ++chunk) {
      if (scramble(region->get().id << 32 ^ chunk) % stride != 0 || !region->enter()) continue;
      spans_.push_back({region, chunk, 1, ranges_.size()});
      ranges_.push_back({region->get().address + chunk * core_->chunk_bytes,
                         chunk_length(region->get().bytes, core_->chunk_bytes, chunk)});
    }
  const std::uint64_t samples = ranges_.size();
  dirty_.clear();
  const Nanos begin = now_ns();
  Result<void> scanned = ok();
  if (samples >= kMinSamples)
    scanned = scanner_->scan(
        ranges_, [this](std::size_t first, std::span<const track::Fingerprint> found) -> Result<void> {
          for (std::size_t i = 0; i < found.size(); ++i) {
            const Span& span = spans_[first + i];
            CKPT_TRYV(core_->diff(*span.region, found.subspan(i, 1), span.first, dirty_));
          }
          return ok();
        });
  for (const Span& span : spans_) span.region->leave();
  ranges_.clear();
  spans_.clear();
  CKPT_TRYV(std::move(scanned));
  if (samples < kMinSamples) return std::optional<Sample>();
  const auto share = static_cast<double>(dirty_.size() + kUnseen) / static_cast<double>(samples);
  Sample sample;
  sample.dirty_bytes = static_cast<std::uint64_t>(static_cast<double>(bytes) * std::min(share, 1.0));
  sample.scan_ns = static_cast<Nanos>(static_cast<double>(now_ns() - begin) * static_cast<double>(chunks) /
                                      static_cast<double>(samples));
  return std::optional(sample);
}

// In pieces, between which regions may leave.
Result<void> Sender::scan_all(std::span<SourceRegion* const> regions) {
  std::uint64_t piece_bytes = 0;
  std::uint64_t most = std::min(kShortPieceBytes, options_.scan_piece_bytes);
  const bool leave_out_scan = may_leave_out_scan(regions);
  ranges_.clear();
  spans_.clear();
  for (SourceRegion* region : regions) {
    const bool unseen = region->unseen();
    region->seen();
    if (unseen && leave_out_scan) {
      CKPT_TRYV(send_unscanned(region));
      continue;
    }
    for (std::uint32_t chunk = 0; chunk < region->chunks(); ++chunk) {
      if (spans_.empty() || spans_.back().region != region)
        spans_.push_back({region, chunk, 0, ranges_.size()});
      const std::uint64_t bytes = chunk_length(region->get().bytes, core_->chunk_bytes, chunk);
      ranges_.push_back({region->get().address + chunk * core_->chunk_bytes, bytes});
      ++spans_.back().count;
      piece_bytes += bytes;
      if (piece_bytes < most && ranges_.size() < kPieceChunks) continue;
      const std::uint64_t found = found_bytes_.load(std::memory_order_relaxed);
      const Nanos scanned = scan_time_;
      CKPT_TRYV(scan_piece());
      const bool much = found_bytes_.load(std::memory_order_relaxed) - found > piece_bytes / kMuchDirty;
      const Nanos took = scan_time_ - scanned;
      if (much)
        most = kShortPieceBytes;
      else if (took < kLongPieceTime / static_cast<Nanos>(kPieceGrowth))
        most *= kPieceGrowth;
      most = std::min(most, options_.scan_piece_bytes);
      piece_bytes = 0;
    }
  }
  return spans_.empty() ? ok() : scan_piece();
}

bool Sender::may_leave_out_scan(std::span<SourceRegion* const> regions) const {
  std::uint64_t chunks = 0;
  for (const SourceRegion* region : regions) chunks += region->unseen() ? region->chunks() : 0;
  return options_.duty >= 1 && chunks >= options_.min_unscanned_chunks;
}

Result<void> Sender::send_unscanned(SourceRegion* region) {
  for (std::uint32_t chunk = 0; chunk < region->chunks(); ++chunk) {
    if (core_->cut.load(std::memory_order_relaxed) || region->dropped()) break;
    DirtyChunk dirty;
    dirty.region = region;
    dirty.chunk = chunk;
    found_bytes_.fetch_add(chunk_length(region->get().bytes, core_->chunk_bytes, chunk),
                           std::memory_order_relaxed);
    CKPT_TRYV(push(dirty));
  }
  wake_lanes();
  if (auto error = core_->error()) return *error;
  return ok();
}

Result<void> Sender::scan_final(std::span<SourceRegion* const> regions) {
  auto scanned = final_scan_->run(
      regions, [this] { return core_->outstanding() == 0; },
      [this](std::span<const ChunkRun> runs,
             std::span<const track::Fingerprint> fingerprints) -> Result<bool> {
        const Nanos held_up = held_up_time_;
        if (core_->failed()) return Error(ErrorCode::kAborted, "The scan was cut short");
        for (const ChunkRun& run : runs) {
          CKPT_TRYV(enqueue_dirty(run.region, fingerprints.first(run.count), run.first));
          fingerprints = fingerprints.subspan(run.count);
        }
        wake_lanes();
        return held_up_time_ != held_up;
      });
  if (auto error = core_->error()) return *error;
  CKPT_TRY(time, std::move(scanned));
  scan_time_ = time;
  return ok();
}

Result<void> Sender::scan_piece() {
  // A region that was dropped since leaves the piece; the others are held until the piece has been scanned.
  std::erase_if(spans_, [&](Span& span) { return !span.region->enter(); });
  std::size_t kept = 0;
  for (Span& span : spans_) {
    std::copy_n(ranges_.begin() + static_cast<std::ptrdiff_t>(span.at), span.count,
                ranges_.begin() + static_cast<std::ptrdiff_t>(kept));
    span.at = kept;
    kept += span.count;
  }
  ranges_.resize(kept);
  Result<void> result = ok();
  const Nanos begin = now_ns();
  const Nanos held_up = held_up_time_;
  if (!ranges_.empty() && !core_->cut.load())
    result =
        scanner_->scan(ranges_, [this](std::size_t first, std::span<const track::Fingerprint> fingerprints) {
          return on_slice(first, fingerprints);
        });
  scan_time_ += now_ns() - begin - (held_up_time_ - held_up);
  for (const Span& span : spans_) span.region->leave();
  ranges_.clear();
  spans_.clear();
  if (auto error = core_->error()) return *error;
  if (!result && core_->cut.load()) return ok();
  return result;
}

Result<void> Sender::on_slice(std::size_t first, std::span<const track::Fingerprint> fingerprints) {
  if (core_->failed() || core_->cut.load()) return Error(ErrorCode::kAborted, "The scan was cut short");
  const std::size_t end = first + fingerprints.size();
  for (const Span& span : spans_) {
    const std::size_t from = std::max(first, span.at);
    const std::size_t to = std::min(end, span.at + span.count);
    if (from >= to) continue;
    const auto chunk = static_cast<std::uint32_t>(span.first + (from - span.at));
    CKPT_TRYV(enqueue_dirty(span.region, fingerprints.subspan(from - first, to - from), chunk));
  }
  wake_lanes();
  return ok();
}

Result<void> Sender::enqueue_dirty(SourceRegion* region, std::span<const track::Fingerprint> fingerprints,
                                   std::uint32_t first) {
  dirty_.clear();
  CKPT_TRYV(core_->diff(*region, fingerprints, first, dirty_));
  const std::uint64_t bytes = region->get().bytes;
  for (const std::uint32_t chunk : dirty_) {
    DirtyChunk dirty;
    dirty.region = region;
    dirty.chunk = chunk;
    dirty.scanned = fingerprints[chunk - first];
    const std::uint64_t length = chunk_length(bytes, core_->chunk_bytes, chunk);
    dirty.zero = dirty.scanned == (length == core_->chunk_bytes
                                       ? core_->zero_chunk
                                       : track::fingerprint_of_zeroes(core_->kernels->params(), length));
    found_bytes_.fetch_add(length, std::memory_order_relaxed);
    CKPT_TRYV(push(dirty));
  }
  return ok();
}

// A message's worth of neighbours goes to one lane, the next to the lane with the least to do.
Result<void> Sender::push(const DirtyChunk& chunk) {
  if (first_copy_ns_ == 0) first_copy_ns_ = now_ns();
  if (group_left_ < core_->chunk_bytes) {
    lanes_[lane_]->wake();
    lane_ = 0;
    for (std::size_t i = 1; i < lanes_.size(); ++i)
      if (lanes_[i]->queue().size() < lanes_[lane_]->queue().size()) lane_ = i;
    group_left_ = core_->message_bytes;
  }
  group_left_ -= core_->chunk_bytes;
  core_->begin(1);
  ChunkQueue<DirtyChunk>& queue = lanes_[lane_]->queue();
  while (!queue.push(chunk)) {
    const Drained before = drained();
    lanes_[lane_]->wake();
    CKPT_TRYV(core_->until([&](const SenderCore::Events&) { return queue.size() <= queue.capacity() / 2; }, 0,
                           "A round"));
    count_only_sending(before);
    observe_encoding(before);
    held_up_time_ += now_ns() - before.time;
  }
  return ok();
}

void Sender::begin_verify() {
  core_->update([](SenderCore::Events& e) { e.scan_done = false; });
  LaneBuffer message(LaneMessage::kVerify, core_->id, core_->round.load() + 1);
  lanes_[0]->post(message);
  verify_begun_ns_ = now_ns();
}

Result<bool> Sender::wait_verified() {
  bool done = false;
  const auto over = [this, &done](const SenderCore::Events& e) {
    done = e.scan_done;
    return done || core_->cut.load();
  };
  CKPT_TRYV(core_->until(over, options_.answer_timeout, "The target's scan"));
  return done;
}

Result<RoundReport> Sender::run_final(std::span<const std::byte> host_state) {
  return final_round(!host_state.empty(), [&] {
    lanes_[0]->send_blob({LaneMessage::kHostState, host_state, {}, 0});
  });
}

Result<RoundReport> Sender::run_final_while_it_grows(std::span<const std::byte> memory) {
  return final_round(true, [&] {
    const std::lock_guard lock(growing_mutex_);
    growing_state_ = memory;
    lanes_[0]->send_blob(
        {LaneMessage::kHostState, memory.first(grown_), {}, grown_whole_ ? 0 : memory.size()});
  });
}

void Sender::host_state_grew(std::uint64_t filled, bool is_whole) {
  const std::lock_guard lock(growing_mutex_);
  grown_ = filled;
  grown_whole_ = is_whole;
  if (!growing_state_.empty()) lanes_[0]->blob_grew(growing_state_.first(filled), is_whole);
}

void Sender::announce_host_state(std::uint64_t most, std::uint64_t expected) {
  LaneBuffer message(LaneMessage::kHostMemory, core_->id, core_->round.load());
  message.append(HostMemoryRecord{most, expected});
  lanes_[0]->post(message);
}

Result<RoundReport> Sender::final_round(bool with_host_state, const std::function<void()>& send_host_state) {
  core_->cut.store(false);
  bool verifies = false;  // wait_verified() was cut short
  core_->update([&verifies, begun = verify_begun_ns_ != 0](SenderCore::Events& e) {
    e.blob_sent = false;
    verifies = begun && !e.scan_done;
  });
  if (!verifies && (verify_begun_ns_ == 0 || now_ns() - verify_begun_ns_ > kVerifyHolds)) begin_verify();
  LaneBuffer message(LaneMessage::kFinal, core_->id, core_->round.load() + 1);
  lanes_[0]->post(message);
  if (with_host_state) send_host_state();
  CKPT_TRY(report, scan_and_send(true));
  CKPT_TRYV(core_->until(
      [with_host_state](const SenderCore::Events& e) {
        return e.scan_done && (e.blob_sent || !with_host_state);
      },
      0, "The target's scan"));
  CKPT_TRYV(resend_stale());
  report.end_ns = now_ns();
  return report;
}

// Chunks that changed at the target after they were acknowledged: its memory is not sound, but one more time
// is allowed.
Result<void> Sender::resend_stale() {
  for (const ChunkId& stale : core_->take_stale()) {
    SourceRegion* region = core_->find_region(stale.region);
    if (region == nullptr || region->get().generation != stale.generation) continue;  // gone since
    core_->mismatch(stale);
    DirtyChunk dirty;
    dirty.region = region;
    dirty.chunk = stale.chunk;
    dirty.raw = true;
    SourceCodec::wrong(dirty);
    CKPT_TRYV(push(dirty));
  }
  wake_lanes();
  return core_->until([this](const SenderCore::Events&) { return core_->outstanding() == 0; }, 0, "A round");
}

Result<Verdict> Sender::commit(std::span<const std::byte> manifest, const std::function<void()>& on_left) {
  CKPT_TRY(root, core_->root());
  core_->update([](SenderCore::Events& e) {
    e.verdict.reset();
    e.blob_sent = false;
  });
  Verdict verdict;
  verdict.sent_ns = now_ns();
  lanes_[0]->send_blob({LaneMessage::kManifest, manifest, root, 0});
  CKPT_TRYV(core_->until([](const SenderCore::Events& e) { return e.blob_sent; }, options_.answer_timeout,
                         "The manifest"));
  if (on_left) on_left();
  CKPT_TRYV(core_->until([](const SenderCore::Events& e) { return e.verdict.has_value(); },
                         options_.answer_timeout, "The manifest"));
  verdict.heard_ns = now_ns();
  const auto answer = *core_->events().verdict;
  if (answer.first.code != 0)
    return Error(ErrorCode::kCorrupt, "The target did not verify: " + answer.second);
  if (answer.first.root != root)
    return Error(ErrorCode::kProtocol, "The target verified another root than was sent");
  verdict.compared_ns = answer.first.time_ns;
  return verdict;
}

void Sender::set_bandwidth(std::uint64_t bytes_per_second) {
  core_->limiter.set_rate(bytes_per_second);
  set_link_rate();
  wake_lanes();
}

void Sender::cancel(const Error& reason) {
  core_->fail(reason);
  wake_lanes();
}

RoundProgress Sender::progress() const {
  const SenderCounters& counters = core_->counters;
  RoundProgress progress;
  progress.round = core_->round.load();
  progress.found_bytes = found_bytes_.load();
  progress.acked_bytes = counters.acked_bytes.load() - acked_before_.load();
  progress.sent_bytes = counters.sent_bytes.load();
  progress.wire_bytes = counters.wire_bytes.load();
  progress.resent_chunks = counters.resent_chunks.load();
  return progress;
}

}  // namespace ckpt::engine
