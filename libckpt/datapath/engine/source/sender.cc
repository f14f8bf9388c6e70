// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/source/sender.h"

#include <algorithm>

#include "libckpt/datapath/engine/source/source_codec.h"

namespace ckpt::engine {
namespace {

constexpr std::uint32_t kCalibrationMessages = 16;  // the maximum number of calibration messages per lane
constexpr std::uint64_t kMinDrainBytes = std::uint64_t{4} << 20;  // the bytes below which a measured rate
                                                                  // would be noise
constexpr Nanos kMinDrainTime = 500'000;

}  // namespace

Result<std::unique_ptr<Sender>> Sender::create(const Device& device, StagingPool& staging,
                                               transport::Transport& transport,
                                               const SenderOptions& options) {
  if (!is_chunk_size(options.chunk_bytes) || options.message_bytes > kSlotBytes ||
      options.addresses.empty() || options.window == 0)
    return Error(ErrorCode::kInvalidArgument, "Chunks of " + std::to_string(options.chunk_bytes) +
                                                  " bytes cannot be sent in messages of " +
                                                  std::to_string(options.message_bytes) + " bytes");
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
  CKPT_TRYV(sender->make_lanes(staging, transport));
  CKPT_TRY(scan, RoundScan::create(*sender->core_, *sender->dispatch_,
                                   {options.duty, options.scan_piece_bytes, options.scan_slice_bytes,
                                    options.min_unscanned_chunks}));
  sender->scan_ = std::move(scan);
  return sender;
}

Result<void> Sender::make_lanes(StagingPool& staging, transport::Transport& transport) {
  const std::size_t threads = worker_count(options_.coders);
  CKPT_TRY(codec,
           SourceCodec::create(options_.codec, options_.shadow_memory_bytes, core_->chunk_bytes, threads));
  core_->codec = std::move(codec);
  core_->same_host = options_.same_host;
  set_link_rate();
  CKPT_TRY(workers, WorkPool::create(core_->device, threads, options_.addresses.size() * options_.window));
  workers_ = std::move(workers);
  for (const std::string& address : options_.addresses) {
    CKPT_TRY(slots, staging.acquire(options_.window));
    CKPT_TRY(lane, SendLane::create(*core_, *workers_, transport, address, options_.token, std::move(slots)));
    lanes_.push_back(std::move(lane));
  }
  dispatch_.emplace(*core_, lanes_);
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
  workers_.reset();  // finishes the work on the lanes' slots
  lanes_.clear();
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
  region->begin_drop();  // begins before the target drops the region, because its answers for the region are
                         // void from here on
  forgo_region(id, region->get().generation);
  dispatch_->wake();
  region->finish_drop();
  core_->erase_region(*region);
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

// Passes the link's rate to the codecs, which compare their own rates with it.
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

Result<RoundReport> Sender::run_round() {
  CKPT_TRY(report, scan_and_send(false));
  core_->refresh_root();
  if (report.round == 1 && !report.cut) {
    CKPT_TRY(sampled, scan_->sample(core_->live_regions()));
    if (sampled) {
      report.sampled_dirty_bytes = sampled->dirty_bytes;
      // Takes the shorter time, because copies slowed the round's own scan, if there was one.
      report.scan_ns = report.scan_ns == 0 ? sampled->scan_ns : std::min(report.scan_ns, sampled->scan_ns);
    }
  }
  return std::move(report);
}

void Sender::cut_round() {
  core_->cut.store(true);
  dispatch_->wake();
  core_->notify();
}

Result<RoundReport> Sender::scan_and_send(bool is_final) {
  RoundReport report;
  report.round = core_->round.fetch_add(1) + 1;
  report.begin_ns = now_ns();
  dispatch_->begin_round();
  scan_->begin_round();
  const SenderCounters& counters = core_->counters;
  const std::uint64_t sent_before = counters.sent_bytes.load();
  const std::uint64_t wire_before = counters.wire_bytes.load();
  acked_before_.store(counters.acked_bytes.load());
  const std::vector<SourceRegion*> regions = core_->live_regions();
  for (const SourceRegion* region : regions) report.state_bytes += region->get().bytes;

  CKPT_TRYV(is_final ? scan_->run_final(regions) : scan_->run(regions));
  report.scan_end_ns = now_ns();
  report.scan_ns = scan_->scan_time();
  const LaneDispatch::Drained drained_before = dispatch_->drained();
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
  report.dirty_bytes = scan_->found_bytes();
  report.first_copy_ns = dispatch_->first_copy_ns();
  report.sent_bytes = counters.sent_bytes.load() - sent_before;
  report.wire_bytes = counters.wire_bytes.load() - wire_before;
  dispatch_->count_only_sending(drained_before);
  const LaneDispatch::Drained& sending = dispatch_->only_sending();
  const auto time = static_cast<double>(sending.time);
  if (sending.wire_bytes >= kMinDrainBytes && sending.time >= kMinDrainTime)
    report.drain_bytes_per_second = static_cast<double>(sending.wire_bytes) * 1e9 / time;
  if (sending.plain_bytes >= kMinDrainBytes && sending.time >= kMinDrainTime)
    report.plain_bytes_per_second = static_cast<double>(sending.plain_bytes) * 1e9 / time;
  return report;
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
  return final_round(true, [&] { begin_host_state(memory); });
}

void Sender::begin_host_state(std::span<const std::byte> memory) {
  const std::lock_guard lock(growing_.mutex);
  if (!growing_.memory.empty()) return;
  growing_.memory = memory;
  lanes_[0]->send_blob(
      {LaneMessage::kHostState, memory.first(growing_.filled), {}, growing_.is_whole ? 0 : memory.size()});
}

void Sender::host_state_grew(std::uint64_t filled, bool is_whole) {
  const std::lock_guard lock(growing_.mutex);
  growing_.filled = filled;
  growing_.is_whole = is_whole;
  if (!growing_.memory.empty()) lanes_[0]->host_state_grew(growing_.memory.first(filled), is_whole);
}

void Sender::announce_host_state(std::uint64_t max_bytes, std::uint64_t expected) {
  LaneBuffer message(LaneMessage::kHostMemory, core_->id, core_->round.load());
  message.append(HostMemoryRecord{max_bytes, expected});
  lanes_[0]->post(message);
}

Result<RoundReport> Sender::final_round(bool with_host_state, const std::function<void()>& send_host_state) {
  core_->cut.store(false);
  bool verifies = false;  // whether the target still verifies, because wait_verified() was interrupted
  core_->update([&verifies, begun = verify_begun_ns_ != 0](SenderCore::Events& e) {
    verifies = begun && !e.scan_done;
  });
  if (!verifies && (verify_begun_ns_ == 0 || now_ns() - verify_begun_ns_ > kVerifyHolds)) begin_verify();
  LaneBuffer message(LaneMessage::kFinal, core_->id, core_->round.load() + 1);
  lanes_[0]->post(message);
  if (with_host_state) send_host_state();
  CKPT_TRY(report, scan_and_send(true));
  CKPT_TRYV(core_->until(
      [with_host_state](const SenderCore::Events& e) {
        return e.scan_done && (e.host_state_sent || !with_host_state);
      },
      0, "The target's scan"));
  CKPT_TRYV(resend_stale());
  report.end_ns = now_ns();
  return report;
}

// Sends again the chunks that changed at the target after their acknowledgement. The target's memory is not
// sound, but one more attempt is allowed.
Result<void> Sender::resend_stale() {
  for (const ChunkId& stale : core_->take_stale()) {
    SourceRegion* region = core_->find_region(stale.region);
    // If the region is missing or has another generation, the chunk's region was dropped in the meantime.
    if (region == nullptr || region->get().generation != stale.generation) continue;
    core_->mismatch(stale);
    DirtyChunk dirty;
    dirty.region = region;
    dirty.chunk = stale.chunk;
    dirty.raw = true;
    SourceCodec::wrong(dirty);
    CKPT_TRYV(dispatch_->push(dirty));
  }
  dispatch_->wake();
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
    return Error(ErrorCode::kCorrupt, "The target could not verify its memory: " + answer.second);
  if (answer.first.root != root)
    return Error(ErrorCode::kProtocol, "The target verified a different root than the source sent");
  verdict.compared_ns = answer.first.time_ns;
  return verdict;
}

void Sender::set_bandwidth(std::uint64_t bytes_per_second) {
  core_->limiter.set_rate(bytes_per_second);
  set_link_rate();
  dispatch_->wake();
}

void Sender::cancel(const Error& reason) {
  core_->fail(reason);
  dispatch_->wake();
}

RoundProgress Sender::progress() const {
  const SenderCounters& counters = core_->counters;
  RoundProgress progress;
  progress.round = core_->round.load();
  progress.found_bytes = scan_->found_bytes();
  progress.acked_bytes = counters.acked_bytes.load() - acked_before_.load();
  progress.sent_bytes = counters.sent_bytes.load();
  progress.wire_bytes = counters.wire_bytes.load();
  progress.resent_chunks = counters.resent_chunks.load();
  progress.host_state_bytes = lanes_.empty() ? 0 : lanes_[0]->host_state_given();
  return progress;
}

}  // namespace ckpt::engine
