// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/source_session.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/mover/copy_options.h"
#include "libckpt/base/fault.h"
#include "libckpt/base/fd.h"
#include "libckpt/image/manifest.h"
#include "libckpt/track/read_rate.h"

namespace ckpt::mover {
namespace {

constexpr std::uint32_t kDefaultMaxRounds = 30;
constexpr Nanos kForEver = 0;
constexpr std::uint64_t kReadRateBytes = std::uint64_t{256}
                                         << 20;  // at most, to measure how fast memory is read
constexpr std::size_t kLargestMeminfo = std::size_t{64} << 10;

std::uint64_t rate(std::uint64_t bytes, Nanos time) {
  return time <= 0 ? 0
                   : static_cast<std::uint64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(time));
}

}  // namespace

SourceSession::~SourceSession() {
  {
    const std::lock_guard lock(order_mutex_);
    ending_ = true;
    const std::string why = end_reason().empty() ? "" : ": " + end_reason();
    if (sender_ && !finished_)
      sender_->cancel(Error(ErrorCode::kAborted, "The source ended the migration" + why));
  }
  ordered_.notify_all();
  if (thread_.joinable()) thread_.join();
  sender_.reset();
}

// ---- the control loop's thread

bool SourceSession::handle(messages::Packet& packet) {
  if (const auto* request = std::get_if<messages::StartSource>(&packet.message)) {
    start(*request);
  } else if (const auto* limits = std::get_if<messages::MoverLimits>(&packet.message)) {
    set_limits(*limits);
  } else if (const auto* order = std::get_if<messages::FinalRound>(&packet.message)) {
    final_round(*order, packet.fds.empty() ? UniqueFd() : std::move(packet.fds.front()));
  } else if (const auto* room = std::get_if<messages::HostRoom>(&packet.message)) {
    if (auto made = host_room(*room, std::move(packet.fds.front())); !made) fail(made.assume_error());
  } else if (const auto* grown = std::get_if<messages::HostGrew>(&packet.message)) {
    if (auto good = host_grew(*grown); !good) fail(good.assume_error());
  } else if (std::holds_alternative<messages::ReleaseManifest>(packet.message)) {
    {
      const std::lock_guard lock(order_mutex_);
      manifest_released_ = true;
    }
    ordered_.notify_all();
  } else {
    return false;
  }
  return true;
}

void SourceSession::start(const messages::StartSource& request) {
  if (thread_.joinable())
    return fail(Error(ErrorCode::kInvalidArgument, "The session has been started already"));
  if (request.addresses.empty() || request.addresses.size() > messages::kMostLanes)
    return fail(Error(ErrorCode::kInvalidArgument,
                      "A source is started with " + std::to_string(request.addresses.size()) + " lanes"));
  request_ = request;
  bandwidth_ = request.options.bandwidth_bytes_per_second;
  thread_ = std::thread([this] { run(); });
}

void SourceSession::set_limits(const messages::MoverLimits& limits) {
  const std::lock_guard lock(order_mutex_);
  if (limits.max_downtime_ns >= 0) {
    request_.options.max_downtime_ns = limits.max_downtime_ns;
    if (convergence_) convergence_->set_max_downtime(limits.max_downtime_ns);
  }
  if (limits.bandwidth_bytes_per_second >= 0) {
    bandwidth_ = static_cast<std::uint64_t>(limits.bandwidth_bytes_per_second);
    if (sender_) sender_->set_bandwidth(bandwidth_);
  }
}

void SourceSession::final_round(const messages::FinalRound& request, UniqueFd host_state) {
  {
    const std::lock_guard lock(order_mutex_);
    if (final_order_) return;
    final_received_ns_ = now_ns();
    final_order_ = request;
    final_file_ = std::move(host_state);
    if (sender_) sender_->cut_round();
  }
  ordered_.notify_all();
}

Result<void> SourceSession::host_room(const messages::HostRoom& request, UniqueFd file) {
  CKPT_TRY(stream, HostStream::open(
                       std::move(file), request.most, request.expected,
                       track::FingerprintParams::expand(secrets_.key, track::FingerprintPurpose::kChunks)));
  const std::lock_guard lock(order_mutex_);
  if (host_stream_) return Error(ErrorCode::kInvalidArgument, "The host state has a file already");
  host_stream_ = std::move(stream);
  return ok();
}

Result<void> SourceSession::host_grew(const messages::HostGrew& request) {
  const std::lock_guard lock(order_mutex_);
  if (!host_stream_) return Error(ErrorCode::kInvalidArgument, "Host state that has no file grows");
  CKPT_TRYV(host_stream_->grew(request.filled, request.whole));
  if (sender_) sender_->host_state_grew(request.filled, request.whole);
  return ok();
}

void SourceSession::attach_tensors(const messages::AttachTensors& request) {
  const std::lock_guard lock(mutex_);
  new_tensors_.insert(new_tensors_.end(), request.tensors.begin(), request.tensors.end());
}

// A tensor's extent goes with the last tensor that lies in it.
void SourceSession::drop_tensors(const messages::DropTensors& request) {
  Session::drop_tensors(request);
  std::vector<std::uint64_t> gone;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(new_tensors_, [&](const wire::TensorInfo& tensor) {
      return std::find(request.names.begin(), request.names.end(), tensor.name) != request.names.end();
    });
    for (const auto& [id, live] : extents_) {
      const bool used = std::any_of(tensors_.begin(), tensors_.end(), [&](const wire::TensorInfo& tensor) {
        return tensor.region == live.extent.region &&
               tensor.offset < live.extent.offset + live.extent.bytes &&
               tensor.offset + tensor.bytes > live.extent.offset;
      });
      if (!used) gone.push_back(id);
    }
    for (const std::uint64_t id : gone) extents_.erase(id);
  }
  std::shared_ptr<engine::Sender> sender;
  {
    const std::lock_guard lock(order_mutex_);
    sender = sender_;
  }
  for (const std::uint64_t id : gone)
    if (sender) sender->drop_region(id);
}

void SourceSession::let_go(std::uint64_t region) {
  std::vector<std::uint64_t> gone;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(new_tensors_, [region](const wire::TensorInfo& tensor) { return tensor.region == region; });
    for (const auto& [id, live] : extents_)
      if (live.extent.region == region) gone.push_back(id);
    for (const std::uint64_t id : gone) extents_.erase(id);
  }
  std::shared_ptr<engine::Sender> sender;
  {
    const std::lock_guard lock(order_mutex_);
    sender = sender_;
  }
  for (const std::uint64_t id : gone)
    if (sender) sender->drop_region(id);
}

void SourceSession::attached() {
  fault_point(FaultPoint::kSourceMoverAttached);
}

void SourceSession::tick() {
  const std::lock_guard lock(order_mutex_);
  send_progress();
}

// With order_mutex_ held. Also after each round, since a round may be shorter than a tick.
void SourceSession::send_progress() {
  if (!sender_ || !convergence_ || ending_ || finished_) return;
  const engine::RoundProgress now = sender_->progress();
  messages::Progress progress;
  progress.session = key_;
  progress.round = now.round;
  progress.done_bytes = now.acked_bytes;
  progress.state_bytes = sender_->state_bytes();
  progress.total_bytes = now.round <= 1 ? progress.state_bytes : now.found_bytes;
  progress.sent_bytes = now.sent_bytes;
  progress.remaining_bytes =
      progress.total_bytes > now.acked_bytes ? progress.total_bytes - now.acked_bytes : 0;
  progress.dirty_bytes_per_second = static_cast<std::uint64_t>(convergence_->dirty_bytes_per_second());
  progress.throughput_bytes_per_second = static_cast<std::uint64_t>(convergence_->throughput());
  // Until the second round is over nobody knows how fast the job writes: the first takes at least what is left of it.
  const auto rest = static_cast<Nanos>(static_cast<double>(progress.remaining_bytes) * 1e9 /
                                       std::max(convergence_->throughput(), 1.0));
  const auto estimate = convergence_->estimate();
  progress.estimate_ns = estimate.value_or(now.round <= 1 && rest > 0 ? rest + request_.fixed_cost_ns : 0);
  progress.eta_ns = estimate ? convergence_->eta().value_or(-1) : rest;
  agent_.send(progress);
}

// ---- any of the sender's threads

void SourceSession::on_mismatch(const engine::MismatchEvent& event) {
  messages::Mismatch mismatch;
  mismatch.session = key_;
  mismatch.extent = event.chunk.region;
  mismatch.chunk = event.chunk.chunk;
  mismatch.times = event.times;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = extents_.find(event.chunk.region); it != extents_.end())
      mismatch.tensor = it->second.tensor;
  }
  agent_.send(mismatch);
}

// ---- the session's thread

void SourceSession::run() {
  const Result<void> moved = move();
  if (moved) return;
  {
    const std::lock_guard lock(order_mutex_);
    if (ending_) return;
  }
  fail(moved.assume_error());
}

Result<void> SourceSession::move() {
  CKPT_TRYV(open_sender());
  CKPT_TRYV(send_new_tensors());
  CKPT_TRY(link, sender_->measure_link());
  link_rate_ = link;
  CKPT_TRYV(measure_memory());
  measure_clock();
  announce_host_state();
  engine::ConvergenceOptions options;
  {
    const std::lock_guard lock(order_mutex_);
    const wire::MigrateOptions& wanted = request_.options;
    options.max_downtime = wanted.max_downtime_ns;
    options.max_rounds = wanted.max_rounds == 0 ? kDefaultMaxRounds : wanted.max_rounds;
    options.switch_anyway = wanted.if_not_converged != wire::NotConverged::kAbort;
    options.fixed_cost = request_.fixed_cost_ns;
    convergence_.emplace(options, static_cast<double>(link_rate_));
  }
  if (request_.options.mode == wire::MigrateMode::kStopCopy) {
    messages::FirstRoundDone first;
    first.session = key_;
    agent_.send(first);
    messages::Converged converged;
    converged.session = key_;
    converged.estimate_ns = static_cast<Nanos>(static_cast<double>(sender_->state_bytes()) * 1e9 /
                                               static_cast<double>(std::max<std::uint64_t>(link_rate_, 1))) +
                            request_.fixed_cost_ns;
    converged.within_limit = converged.estimate_ns <= options.max_downtime;
    agent_.send(converged);
    wait_for_order(kForEver);
  } else {
    CKPT_TRYV(precopy());
    CKPT_TRYV(keep_fresh());
  }
  return finish();
}

Result<void> SourceSession::open_sender() {
  engine::SenderOptions options;
  options.id = identity_;
  options.key = secrets_.key;
  options.token = secrets_.token;
  options.addresses = request_.addresses;
  options.near = request_.near;
  options.chunk_bytes = gpu_.chunk_bytes;
  options.codec = codec_mode(request_.options.codec);
  options.shadow_memory_bytes = allowed_shadow_memory();
  options.duty = duty_of(request_.options.slowdown_permille);
  options.observer = this;
  CKPT_TRY(sender, engine::Sender::create(gpu_.device, *gpu_.staging, *gpu_.transport, options));
  {
    const std::lock_guard lock(order_mutex_);
    if (ending_) return Error(ErrorCode::kAborted, "The session was ended");
    sender_ = std::move(sender);
    sender_->set_bandwidth(bandwidth_);
    if (final_order_) sender_->cut_round();
    if (host_stream_) sender_->host_state_grew(host_stream_->extent().filled, host_stream_->extent().whole);
  }
  CKPT_TRYV(sender_->connect());
  spdlog::info("lanes: id m{} open {} within_this_machine {}", key_.migration, request_.addresses.size(),
               sender_->near_lanes());
  return ok();
}

// Once; the target gives it memory beside the rounds.
void SourceSession::announce_host_state() {
  const std::lock_guard lock(order_mutex_);
  if (!host_stream_ || host_announced_) return;
  sender_->announce_host_state(host_stream_->room().size(), host_stream_->expected());
  host_announced_ = true;
}

std::uint64_t SourceSession::allowed_shadow_memory() const {
  const std::uint64_t asked = request_.options.shadow_memory_bytes;
  if (asked == 0) return 0;
  const auto meminfo = read_file("/proc/meminfo", kLargestMeminfo);
  const std::uint64_t given = shadow_memory(asked, meminfo ? meminfo.assume_value() : std::string());
  if (given < asked)
    spdlog::warn("shadow memory: {} bytes asked for, {} given: half of what the node has left", asked, given);
  return given;
}

// A plan of what was named since the last one. The first plan is sent even if it is empty: it carries the chunk size.
// A running job names memory before it exports it: what has no region yet waits for the next time, but not `at_last`: a rank is paused only when its
// exports are acknowledged, so what has none then was freed, or was never exported.
Result<void> SourceSession::send_new_tensors(bool at_last) {
  image::Plan plan;
  {
    const std::lock_guard lock(mutex_);
    const auto waiting = std::stable_partition(
        new_tensors_.begin(), new_tensors_.end(),
        [&](const wire::TensorInfo& tensor) { return at_last || regions_.contains(tensor.region); });
    const std::vector<wire::TensorInfo> ready(new_tensors_.begin(), waiting);
    if (ready.empty() && tensors_sent_ > 0) return ok();
    CKPT_TRY(built, image::build_plan(ready, gpu_.chunk_bytes, 1, next_extent_));
    plan = std::move(built);
    next_extent_ += plan.extents.size();
    tensors_.insert(tensors_.end(), ready.begin(), ready.end());
    tensors_sent_ += std::max<std::size_t>(ready.size(), 1);
    new_tensors_.erase(new_tensors_.begin(), waiting);
  }
  CKPT_TRYV(sender_->send_plan(wire::encode(plan)));
  CKPT_TRYV(add_extents(plan));
  messages::PlanAccepted accepted;
  accepted.session = key_;
  accepted.state_bytes = sender_->state_bytes();
  accepted.tensors = tensors_sent_;
  agent_.send(accepted);
  return ok();
}

// Under the lock, so that a region freed meanwhile is either not there, or dropped after it has been added.
Result<void> SourceSession::add_extents(const image::Plan& plan) {
  const std::lock_guard lock(mutex_);
  for (const image::Extent& extent : plan.extents) {
    const auto it = regions_.find(extent.region);
    if (it == regions_.end()) {
      sender_->forgo_region(extent.id, extent.generation);
      continue;
    }
    const AttachedRegion& region = it->second;
    const std::string& tensor = plan.tensors[extent.tensor].name;
    if (extent.offset > region.bytes || extent.bytes > region.bytes - extent.offset)
      return Error(ErrorCode::kInvalidArgument, "Tensor \"" + tensor + "\" lies outside of its allocation");
    CKPT_TRYV(sender_->add_region(
        {extent.id, extent.generation, region.address + extent.offset, extent.bytes, region.mapping}));
    extents_[extent.id] = {extent, tensor};
  }
  return ok();
}

// The memory rate of the bound, by a plain read beside which the scans stand. Under the lock: a region that is freed meanwhile is
// let go of after it. A move does not fail for want of a measurement.
Result<void> SourceSession::measure_memory() {
  const auto params = track::FingerprintParams::expand(secrets_.key, track::FingerprintPurpose::kChunks);
  const std::lock_guard lock(mutex_);
  std::vector<track::ChunkRange> ranges;
  for (const auto& [id, live] : extents_) {
    const auto it = regions_.find(live.extent.region);
    if (it != regions_.end()) ranges.push_back({it->second.address + live.extent.offset, live.extent.bytes});
  }
  if (ranges.empty()) return ok();
  // Long runs first: a launch over many small ones says more of its list than of the memory.
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  const auto measure = [&]() -> Result<std::uint64_t> {
    CKPT_TRY(kernels, track::TrackKernels::create(gpu_.device, params));
    return track::measure_read_rate(*kernels, ranges, kReadRateBytes);
  };
  const auto measured = measure();
  if (measured) {
    scan_rate_ = std::max(scan_rate_, measured.assume_value());
    return ok();
  }
  if (measured.assume_error().code() == ErrorCode::kDevice) return measured.assume_error();
  spdlog::warn("the memory's read rate was not measured: {}", measured.assume_error().to_string());
  return ok();
}

Result<engine::RoundReport> SourceSession::run_round() {
  CKPT_TRYV(send_new_tensors());
  fault_point(FaultPoint::kSourceMoverRound);
  CKPT_TRY(report, sender_->run_round());
  if (report.cut) {  // what it has not sent is found again by the final round
    if (rounds_ > 0) dirty_bytes_ += report.sent_bytes;
    return report;
  }
  ++rounds_;
  count(report);
  last_round_time_ = report.end_ns - report.begin_ns;
  spdlog::info("round: id m{} round {} dirty_bytes {} sent_bytes {} scan_ms {:.1f} total_ms {:.1f}",
               key_.migration, report.round, report.dirty_bytes, report.sent_bytes,
               static_cast<double>(report.scan_ns) / 1e6, static_cast<double>(last_round_time_) / 1e6);
  return report;
}

// No bound may rest on a rate that the move itself has surpassed.
void SourceSession::count(const engine::RoundReport& report) {
  state_bytes_ = report.state_bytes;
  if (report.round > 1) dirty_bytes_ += report.dirty_bytes;
  scan_rate_ = std::max(scan_rate_, rate(report.state_bytes, report.scan_ns));
  link_rate_ = std::max(link_rate_, static_cast<std::uint64_t>(report.drain_bytes_per_second));
}

Result<void> SourceSession::precopy() {
  engine::Advice advice = engine::Advice::kContinue;
  while (advice == engine::Advice::kContinue) {
    CKPT_TRY(report, run_round());
    if (report.cut) return ok();
    if (rounds_ == 1) {
      messages::FirstRoundDone first;
      first.session = key_;
      agent_.send(first);
    }
    engine::RoundObservation seen;
    seen.state_bytes = report.state_bytes;
    seen.dirty_bytes = report.dirty_bytes;
    seen.scan_time = report.scan_ns;
    seen.round_time = report.end_ns - report.begin_ns;
    seen.throughput = report.plain_bytes_per_second;
    seen.sampled_dirty_bytes = report.sampled_dirty_bytes;
    const std::lock_guard lock(order_mutex_);
    advice = convergence_->observe(seen);
    send_progress();
  }
  if (advice != engine::Advice::kGiveUp) {
    CKPT_TRYV(verify_ahead());
  }
  report_advice(advice);
  return ok();
}

// The target's scan runs beside a last round, if one is left, before the job is paused: at the barrier it would only hold up the source's where
// both share a memory, and it would not find more.
Result<void> SourceSession::verify_ahead() {
  std::uint32_t most_rounds = 0;
  {
    const std::lock_guard lock(order_mutex_);
    most_rounds = convergence_->options().max_rounds;
  }
  announce_host_state();
  sender_->begin_verify();
  if (rounds_ < most_rounds) {
    CKPT_TRYV(run_round());
  }
  return sender_->wait_verified();
}

void SourceSession::report_advice(engine::Advice advice) {
  Nanos estimate = 0;
  {
    const std::lock_guard lock(order_mutex_);
    estimate = convergence_->estimate().value_or(0);
  }
  spdlog::info("precopy ends: id m{} advice {} rounds {} estimate_ms {:.1f}", key_.migration,
               engine::to_string(advice), rounds_, static_cast<double>(estimate) / 1e6);
  if (advice == engine::Advice::kGiveUp) {
    messages::DidNotConverge lost;
    lost.session = key_;
    lost.rounds = rounds_;
    lost.estimate_ns = estimate;
    lost.reason = "after " + std::to_string(rounds_) + " rounds a switch would take about " +
                  std::to_string(estimate / 1'000'000) + " ms, the limit is " +
                  std::to_string(request_.options.max_downtime_ns / 1'000'000) + " ms";
    agent_.send(lost);
    wait_for_order(kForEver);
    return;
  }
  messages::Converged converged;
  converged.session = key_;
  converged.rounds = rounds_;
  converged.estimate_ns = estimate;
  converged.within_limit = advice == engine::Advice::kSwitch;
  agent_.send(converged);
}

bool SourceSession::wait_for_order(Nanos timeout) {
  std::unique_lock lock(order_mutex_);
  const auto ordered = [this] { return final_order_.has_value() || ending_; };
  if (timeout != kForEver) return ordered_.wait_for(lock, std::chrono::nanoseconds(timeout), ordered);
  ordered_.wait(lock, ordered);
  return true;
}

// Between the decision and the pause the job runs on, to its next barrier.
Result<void> SourceSession::keep_fresh() {
  const double duty = duty_of(request_.options.slowdown_permille);
  while (!wait_for_order(fresh_pause(last_round_time_, duty))) {
    CKPT_TRY(report, run_round());
    if (report.cut) break;
  }
  return ok();
}

Result<void> SourceSession::finish() {
  messages::FinalRound order;
  UniqueFd file;
  {
    const std::lock_guard lock(order_mutex_);
    if (ending_) return Error(ErrorCode::kAborted, "The session was ended");
    order = *final_order_;
    file = std::move(final_file_);
  }
  fault_point(FaultPoint::kSourceMoverFinal);
  CKPT_TRYV(send_new_tensors(true));
  std::optional<HostStateView> host_state;
  CKPT_TRY(report, run_final(order, std::move(file), host_state));
  ++rounds_;
  final_report_ = report;
  count(report);
  if (report.first_copy_ns != 0)
    link_rate_ = std::max(link_rate_, rate(report.wire_bytes, report.end_ns - report.first_copy_ns));
  messages::FinalSent sent;
  sent.session = key_;
  sent.final_received_ns = final_received_ns_;
  sent.scan_begin_ns = report.begin_ns;
  sent.scan_end_ns = report.scan_end_ns;
  sent.last_ack_ns = report.end_ns;
  fill(sent.counters);
  agent_.send(sent);

  CKPT_TRY(bytes, manifest(host_state ? host_state->fingerprint() : host_stream_->fingerprint()));
  {
    std::unique_lock lock(order_mutex_);
    ordered_.wait(lock, [this] { return manifest_released_ || ending_; });
    if (ending_) return Error(ErrorCode::kAborted, "The session was ended");
  }
  CKPT_TRY(verdict, sender_->commit(bytes, [] { fault_point(FaultPoint::kSourceMoverManifest); }));
  measure_clock();
  {
    const std::lock_guard lock(order_mutex_);
    finished_ = true;
  }
  messages::FinalDone done;
  done.session = key_;
  done.final_received_ns = final_received_ns_;
  done.scan_begin_ns = report.begin_ns;
  done.scan_end_ns = report.scan_end_ns;
  done.last_ack_ns = report.end_ns;
  done.manifest_sent_ns = verdict.sent_ns;
  done.verified_heard_ns = verdict.heard_ns;
  fill(done.counters);
  agent_.send(done);
  return ok();
}

Result<engine::RoundReport> SourceSession::run_final(const messages::FinalRound& order, UniqueFd file,
                                                     std::optional<HostStateView>& host_state) {
  if (order.host_state_grows) {
    if (!host_stream_) return Error(ErrorCode::kInvalidArgument, "Host state that grows has no file");
    CKPT_TRY(report, sender_->run_final_while_it_grows(host_stream_->room()));
    host_bytes_ = host_stream_->extent().filled;
    return report;
  }
  CKPT_TRY(view, HostStateView::open(
                     std::move(file), order.host_state_bytes,
                     track::FingerprintParams::expand(secrets_.key, track::FingerprintPurpose::kChunks)));
  host_state.emplace(std::move(view));
  host_bytes_ = order.host_state_bytes;
  return sender_->run_final(host_state->bytes());
}

Result<std::vector<std::byte>> SourceSession::manifest(const track::Fingerprint& host) {
  CKPT_TRY(root, sender_->root());
  image::Manifest manifest;
  manifest.migration = identity_.migration;
  manifest.incarnation = identity_.incarnation;
  manifest.rank = identity_.rank;
  manifest.chunk_bytes = gpu_.chunk_bytes;
  manifest.root_lo = root.lo;
  manifest.root_hi = root.hi;
  manifest.host_state_bytes = host_bytes_;
  manifest.host_state_lo = host.lo;
  manifest.host_state_hi = host.hi;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, live] : extents_) {
    image::ManifestExtent extent;
    extent.id = id;
    extent.generation = live.extent.generation;
    extent.bytes = live.extent.bytes;
    manifest.extents.push_back(extent);
  }
  return wire::encode(manifest);
}

// Of several measurements the one with the shortest round trip counts.
void SourceSession::measure_clock() {
  auto measured = sender_->measure_clock();
  if (!measured) return;
  if (!has_clock_ || measured.assume_value().uncertainty < clock_.uncertainty)
    clock_ = measured.assume_value();
  has_clock_ = true;
}

void SourceSession::fill(messages::SourceCounters& counters) const {
  const engine::RoundProgress progress = sender_->progress();
  counters.rounds = rounds_;
  counters.state_bytes = state_bytes_;
  counters.sent_bytes = progress.sent_bytes;
  counters.wire_bytes = progress.wire_bytes;
  counters.dirty_bytes = dirty_bytes_;
  counters.final_bytes = std::min(final_report_.dirty_bytes, final_report_.wire_bytes);
  counters.host_bytes = host_bytes_;
  counters.resent_chunks = progress.resent_chunks;
  counters.link_bytes_per_second = link_rate_;
  counters.scan_bytes_per_second = scan_rate_;
  counters.scan_ns = final_report_.scan_ns;
  counters.copy_ns =
      final_report_.first_copy_ns == 0 ? 0 : final_report_.end_ns - final_report_.first_copy_ns;
  counters.estimate_ns = convergence_->estimate().value_or(0);
  counters.clock_offset_ns = clock_.offset;
  counters.clock_uncertainty_ns = clock_.uncertainty;
}

}  // namespace ckpt::mover
