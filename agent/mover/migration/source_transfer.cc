// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/migration/source_transfer.h"

#include <algorithm>

#include "agent/mover/session/copy_options.h"
#include "libckpt/base/fault.h"
#include "libckpt/base/fd.h"
#include "libckpt/net/control/log.h"
#include "libckpt/protocol/wire/ids.h"
#include "libckpt/store/manifest.h"

namespace ckpt::mover {
namespace {

constexpr std::uint32_t kDefaultMaxRounds = 30;
constexpr Nanos kForEver = 0;
constexpr std::size_t kMaxMeminfoBytes = std::size_t{64} << 10;

std::uint64_t allowed_shadow_memory(std::uint64_t asked) {
  if (asked == 0) return 0;
  const auto meminfo = read_file("/proc/meminfo", kMaxMeminfoBytes);
  const std::uint64_t given = shadow_memory(asked, meminfo ? *meminfo : std::string());
  if (given < asked)
    spdlog::warn("shadow memory: {} bytes requested, {} granted: half of the node's free memory", asked,
                 given);
  return given;
}

engine::RoundObservation observation(const engine::RoundReport& report) {
  engine::RoundObservation seen;
  seen.state_bytes = report.state_bytes;
  seen.dirty_bytes = report.dirty_bytes;
  seen.scan_time = report.scan_ns;
  seen.round_time = report.end_ns - report.begin_ns;
  seen.throughput = report.plain_bytes_per_second;
  seen.sampled_dirty_bytes = report.sampled_dirty_bytes;
  return seen;
}

}  // namespace

SourceTransfer::~SourceTransfer() {
  {
    const std::lock_guard lock(order_mutex_);
    ending_ = true;
    const std::string cause = end_reason().empty() ? "" : ": " + end_reason();
    if (sender_ && !finished_)
      sender_->cancel(Error(ErrorCode::kAborted, "The source ended the migration" + cause));
  }
  ordered_.notify_all();
  if (thread_.joinable()) thread_.join();
  sender_.reset();
}

// ---- the control loop's thread

bool SourceTransfer::handle(messages::Packet& packet) {
  if (const auto* request = std::get_if<messages::StartSource>(&packet.message)) {
    start(*request);
  } else if (const auto* limits = std::get_if<messages::MoverLimits>(&packet.message)) {
    set_limits(*limits);
  } else if (const auto* order = std::get_if<messages::FinalRound>(&packet.message)) {
    final_round(*order, packet.fds.empty() ? UniqueFd() : std::move(packet.fds.front()));
  } else if (const auto* host = std::get_if<messages::HostStateFile>(&packet.message)) {
    if (auto made = open_host_state_file(*host, std::move(packet.fds.front())); !made) fail(made.error());
  } else if (const auto* grown = std::get_if<messages::HostGrew>(&packet.message)) {
    if (auto good = host_grew(*grown); !good) fail(good.error());
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

void SourceTransfer::start(const messages::StartSource& request) {
  if (thread_.joinable())
    return fail(Error(ErrorCode::kInvalidArgument, "The session has been started already"));
  if (request.addresses.empty() || request.addresses.size() > messages::kMaxLanes)
    return fail(Error(ErrorCode::kInvalidArgument,
                      "A source cannot start with " + std::to_string(request.addresses.size()) + " lanes"));
  request_ = request;
  bandwidth_ = request.options.bandwidth_bytes_per_second;
  thread_ = std::thread([this] { run(); });
}

void SourceTransfer::set_limits(const messages::MoverLimits& limits) {
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

void SourceTransfer::final_round(const messages::FinalRound& request, UniqueFd host_state) {
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

Result<void> SourceTransfer::open_host_state_file(const messages::HostStateFile& request, UniqueFd file) {
  const std::lock_guard lock(order_mutex_);
  return host_state_.open_file(request, std::move(file), chunk_params());
}

Result<void> SourceTransfer::host_grew(const messages::HostGrew& request) {
  const std::lock_guard lock(order_mutex_);
  return host_state_.grew(request, sender_.get());
}

void SourceTransfer::attach_tensors(const messages::AttachTensors& request) {
  const std::lock_guard lock(mutex_);
  extents_.name(request.tensors);
}

void SourceTransfer::drop_tensors(const messages::DropTensors& request) {
  Session::drop_tensors(request);
  std::vector<std::uint64_t> gone;
  {
    const std::lock_guard lock(mutex_);
    gone = extents_.drop_tensors(request.names, tensors_);
  }
  drop_from_sender(gone);
}

void SourceTransfer::release(std::uint64_t region) {
  std::vector<std::uint64_t> gone;
  {
    const std::lock_guard lock(mutex_);
    gone = extents_.drop_region(region);
  }
  drop_from_sender(gone);
}

void SourceTransfer::drop_from_sender(const std::vector<std::uint64_t>& extents) {
  std::shared_ptr<engine::Sender> sender;
  {
    const std::lock_guard lock(order_mutex_);
    sender = sender_;
  }
  if (!sender) return;
  for (const std::uint64_t id : extents) sender->drop_region(id);
}

void SourceTransfer::attached() {
  fault_point(FaultPoint::kSourceMoverAttached);
}

void SourceTransfer::tick() {
  const std::lock_guard lock(order_mutex_);
  send_progress();
}

// Sends progress. Called with order_mutex_ held, also after each round, because a round may be shorter than a
// tick.
void SourceTransfer::send_progress() {
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
  // The job's write rate is unknown until the second round is complete. The first round takes at least the
  // time for its remaining bytes.
  const auto rest = static_cast<Nanos>(static_cast<double>(progress.remaining_bytes) * 1e9 /
                                       std::max(convergence_->throughput(), 1.0));
  const auto estimate = convergence_->estimate();
  const Nanos first = std::max(rest, request_.beside_copy_ns) + request_.fixed_cost_ns;
  progress.estimate_ns = estimate.value_or(now.round <= 1 && rest > 0 ? first : 0);
  progress.eta_ns = estimate ? convergence_->eta().value_or(-1) : rest;
  progress.wire_bytes_per_second = wire_rate_.observe(now.wire_bytes, now_ns());
  progress.host_state_bytes = now.host_state_bytes;
  agent_.send(progress);
}

// ---- any of the sender's threads

void SourceTransfer::on_mismatch(const engine::MismatchEvent& event) {
  messages::Mismatch mismatch;
  mismatch.session = key_;
  mismatch.extent = event.chunk.region;
  mismatch.chunk = event.chunk.chunk;
  mismatch.times = event.times;
  {
    const std::lock_guard lock(mutex_);
    mismatch.tensor = extents_.tensor_of(event.chunk.region);
  }
  agent_.send(mismatch);
}

// ---- the session's thread

void SourceTransfer::run() {
  const Result<void> moved = move();
  if (moved) return;
  {
    const std::lock_guard lock(order_mutex_);
    if (ending_) return;
  }
  fail(moved.error());
}

Result<void> SourceTransfer::move() {
  CKPT_TRYV(open_sender());
  CKPT_TRYV(send_new_tensors());
  CKPT_TRYV(measures_.measure_link(*sender_));
  CKPT_TRYV(measure_memory());
  measures_.measure_clock(*sender_);
  announce_host_state();
  engine::ConvergenceOptions options;
  {
    const std::lock_guard lock(order_mutex_);
    const wire::MigrateOptions& wanted = request_.options;
    options.max_downtime = wanted.max_downtime_ns;
    options.max_rounds = wanted.max_rounds == 0 ? kDefaultMaxRounds : wanted.max_rounds;
    options.switch_anyway = wanted.if_not_converged != wire::NotConverged::kAbort;
    options.fixed_cost = request_.fixed_cost_ns;
    options.beside = request_.beside_copy_ns;
    convergence_.emplace(options, static_cast<double>(measures_.link_rate()));
  }
  if (request_.options.strategy == wire::MigrateStrategy::kStopCopy) {
    CKPT_TRYV(stop_copy());
  } else {
    CKPT_TRYV(precopy());
    CKPT_TRYV(keep_fresh());
  }
  return finish();
}

Result<void> SourceTransfer::stop_copy() {
  messages::FirstRoundDone first;
  first.session = key_;
  agent_.send(first);
  engine::Advice advice = engine::Advice::kContinue;
  {
    const std::lock_guard lock(order_mutex_);
    advice = convergence_->evaluate_stop_copy(sender_->state_bytes());
  }
  if (advice != engine::Advice::kGiveUp) {
    CKPT_TRYV(wait_for_host_memory());
  }
  report_advice(advice);
  if (advice != engine::Advice::kGiveUp) wait_for_order(kForEver);
  return ok();
}

// Allocates memory for host state at the target before the pause, however long this takes. Returns false if
// the final round was ordered in the meantime.
Result<bool> SourceTransfer::wait_for_host_memory() {
  announce_host_state();
  {
    const std::lock_guard lock(order_mutex_);
    if (!host_state_.is_announced()) return true;
  }
  sender_->begin_verify();
  return sender_->wait_verified();
}

Result<void> SourceTransfer::open_sender() {
  engine::SenderOptions options;
  options.id = identity_;
  options.key = secrets_.key;
  options.token = secrets_.token;
  options.addresses = request_.addresses;
  options.same_host = request_.same_host;
  options.chunk_bytes = gpu_.chunk_bytes;
  options.codec = codec_mode(request_.options.codec);
  options.shadow_memory_bytes = allowed_shadow_memory(request_.options.shadow_memory_bytes);
  options.duty = duty_of(request_.options.slowdown_permille);
  options.observer = this;
  CKPT_TRYV(use_network());
  CKPT_TRY(sender, engine::Sender::create(gpu_.device, *gpu_.staging, *transport_, options));
  {
    const std::lock_guard lock(order_mutex_);
    if (ending_) return Error(ErrorCode::kAborted, "The session was ended");
    sender_ = std::move(sender);
    sender_->set_bandwidth(bandwidth_);
    if (final_order_) sender_->cut_round();
    host_state_.announce_to(*sender_);
  }
  CKPT_TRYV(sender_->connect());
  spdlog::info("lanes: id {} open {} within_this_machine {} in_place {} over_addresses {}",
               wire::migration_text(key_.migration), request_.addresses.size(),
               sender_->same_host_lanes(transport::PayloadAccess::kReads),
               sender_->same_host_lanes(transport::PayloadAccess::kMaps), paths_);
  return ok();
}

void SourceTransfer::announce_host_state() {
  const std::lock_guard lock(order_mutex_);
  host_state_.announce(*sender_);
}

Result<void> SourceTransfer::send_new_tensors(bool at_last) {
  std::optional<image::Plan> plan;
  std::uint64_t tensors = 0;
  {
    const std::lock_guard lock(mutex_);
    CKPT_TRY(made, extents_.next_plan(regions_, gpu_.chunk_bytes, at_last, tensors_));
    plan = std::move(made);
    tensors = extents_.tensors_sent();
  }
  if (!plan) return ok();
  CKPT_TRYV(sender_->send_plan(wire::encode(*plan)));
  {
    const std::lock_guard lock(mutex_);
    CKPT_TRYV(extents_.add(*plan, regions_, *sender_));
  }
  messages::PlanAccepted accepted;
  accepted.session = key_;
  accepted.state_bytes = sender_->state_bytes();
  accepted.tensors = tensors;
  agent_.send(accepted);
  return ok();
}

// Measures under the lock. A region that is freed during the measurement is released afterwards.
Result<void> SourceTransfer::measure_memory() {
  auto params = chunk_params();
  const std::lock_guard lock(mutex_);
  return measures_.measure_memory(gpu_.device, std::move(params), extents_.ranges(regions_));
}

Result<engine::RoundReport> SourceTransfer::run_round() {
  CKPT_TRYV(send_new_tensors());
  fault_point(FaultPoint::kSourceMoverRound);
  CKPT_TRY(report, sender_->run_round());
  measures_.count_round(report);
  if (report.cut) return report;
  spdlog::info("round: id {} round {} dirty_bytes {} sent_bytes {} scan_ms {:.1f} total_ms {:.1f}",
               wire::migration_text(key_.migration), report.round, report.dirty_bytes, report.sent_bytes,
               static_cast<double>(report.scan_ns) / 1e6,
               static_cast<double>(measures_.last_round_time()) / 1e6);
  return report;
}

bool SourceTransfer::shares_link() {
  const std::lock_guard lock(order_mutex_);
  return host_state_.leaves_ahead();
}

// Checks whether the pause may still become short enough. Rates of rounds that share the link are too low to
// justify an abort. The agent decides after host state was sent.
bool SourceTransfer::may_yet_fit() {
  const std::lock_guard lock(order_mutex_);
  return host_state_.leaves_ahead() && convergence_->fits_without_copy();
}

Result<bool> SourceTransfer::refresh() {
  CKPT_TRY(report, run_round());
  if (report.cut) return false;
  const std::lock_guard lock(order_mutex_);
  convergence_->refresh(observation(report));
  send_progress();
  return true;
}

Result<void> SourceTransfer::precopy() {
  engine::Advice advice = engine::Advice::kContinue;
  while (advice == engine::Advice::kContinue) {
    CKPT_TRY(report, run_round());
    if (report.cut) return ok();
    if (measures_.rounds() == 1) {
      messages::FirstRoundDone first;
      first.session = key_;
      agent_.send(first);
    }
    const std::lock_guard lock(order_mutex_);
    advice = convergence_->observe(observation(report));
    send_progress();
  }
  if (advice == engine::Advice::kGiveUp && may_yet_fit()) advice = engine::Advice::kSwitchAnyway;
  if (advice != engine::Advice::kGiveUp) {
    CKPT_TRYV(verify_ahead());
  }
  report_advice(advice);
  return ok();
}

// Runs a last round while the target scans. The round's times are useful for the estimate of the pause only
// if the earlier rounds shared the link.
Result<void> SourceTransfer::last_round() {
  const bool shared = shares_link();
  CKPT_TRY(report, run_round());
  const std::lock_guard lock(order_mutex_);
  if (shared && !report.cut) convergence_->refresh(observation(report));
  return ok();
}

// Lets the target verify before the job is paused, in parallel with a last round if one is left. At the
// barrier, the target's scan would find nothing more. It would only delay the source's scan if both share a
// memory.
Result<void> SourceTransfer::verify_ahead() {
  std::uint32_t max_rounds = 0;
  {
    const std::lock_guard lock(order_mutex_);
    max_rounds = convergence_->options().max_rounds;
  }
  CKPT_TRY(is_there, wait_for_host_memory());
  if (!is_there) return ok();
  sender_->begin_verify();
  if (measures_.rounds() < max_rounds) {
    CKPT_TRYV(last_round());
  }
  CKPT_TRYV(sender_->wait_verified());
  return ok();
}

void SourceTransfer::report_advice(engine::Advice advice) {
  const Nanos estimated = estimate();
  Nanos limit = 0;
  {
    const std::lock_guard lock(order_mutex_);
    limit = request_.options.max_downtime_ns;
  }
  spdlog::info("precopy ends: id {} advice {} rounds {} estimate_ms {:.1f}",
               wire::migration_text(key_.migration), engine::to_string(advice), measures_.rounds(),
               static_cast<double>(estimated) / 1e6);
  if (advice == engine::Advice::kGiveUp) {
    messages::DidNotConverge lost;
    lost.session = key_;
    lost.rounds = measures_.rounds();
    lost.estimate_ns = estimated;
    lost.reason = "after " + std::to_string(measures_.rounds()) + " rounds a switch would take about " +
                  std::to_string(estimated / 1'000'000) + " ms, but the limit is " +
                  std::to_string(limit / 1'000'000) + " ms";
    agent_.send(lost);
    wait_for_order(kForEver);
    return;
  }
  messages::Converged converged;
  converged.session = key_;
  converged.rounds = measures_.rounds();
  converged.estimate_ns = estimated;
  converged.within_limit = advice == engine::Advice::kSwitch;
  agent_.send(converged);
}

bool SourceTransfer::wait_for_order(Nanos timeout) {
  std::unique_lock lock(order_mutex_);
  const auto ordered = [this] { return final_order_.has_value() || ending_; };
  if (timeout != kForEver) return ordered_.wait_for(lock, std::chrono::nanoseconds(timeout), ordered);
  ordered_.wait(lock, ordered);
  return true;
}

// Updates the target between the decision and the pause, while the job runs to its next barrier.
Result<void> SourceTransfer::keep_fresh() {
  const double duty = duty_of(request_.options.slowdown_permille);
  while (!wait_for_order(fresh_pause(measures_.last_round_time(), duty))) {
    CKPT_TRY(whole, refresh());
    if (!whole) break;
  }
  return ok();
}

Result<void> SourceTransfer::finish() {
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
  CKPT_TRY(report, host_state_.run_final(order, std::move(file), chunk_params(), *sender_));
  measures_.count_final(report, host_state_.bytes() - host_state_.ahead_bytes(), host_state_.ahead_bytes());
  messages::FinalSent sent;
  sent.session = key_;
  sent.final_received_ns = final_received_ns_;
  sent.scan_begin_ns = report.begin_ns;
  sent.scan_end_ns = report.scan_end_ns;
  sent.last_ack_ns = report.end_ns;
  sent.counters = counters();
  agent_.send(sent);

  CKPT_TRY(bytes, manifest());
  {
    std::unique_lock lock(order_mutex_);
    ordered_.wait(lock, [this] { return manifest_released_ || ending_; });
    if (ending_) return Error(ErrorCode::kAborted, "The session was ended");
  }
  CKPT_TRY(verdict, sender_->commit(bytes, [] { fault_point(FaultPoint::kSourceMoverManifest); }));
  measures_.measure_clock(*sender_);
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
  done.verified_heard_ns = measures_.verified_ns(verdict);
  done.counters = counters();
  agent_.send(done);
  return ok();
}

Result<std::vector<std::byte>> SourceTransfer::manifest() {
  CKPT_TRY(root, sender_->root());
  const track::Fingerprint host = host_state_.fingerprint();
  image::Manifest manifest;
  manifest.migration = identity_.migration;
  manifest.incarnation = identity_.incarnation;
  manifest.rank = identity_.rank;
  manifest.chunk_bytes = gpu_.chunk_bytes;
  manifest.root_lo = root.lo;
  manifest.root_hi = root.hi;
  manifest.host_state_bytes = host_state_.bytes();
  manifest.host_state_lo = host.lo;
  manifest.host_state_hi = host.hi;
  const std::lock_guard lock(mutex_);
  manifest.extents = extents_.in_manifest();
  return wire::encode(manifest);
}

std::shared_ptr<const track::FingerprintParams> SourceTransfer::chunk_params() const {
  return track::FingerprintParams::expand(secrets_.key, track::FingerprintPurpose::kChunks);
}

Nanos SourceTransfer::estimate() {
  const std::lock_guard lock(order_mutex_);
  return convergence_->estimate().value_or(0);
}

messages::SourceCounters SourceTransfer::counters() {
  return measures_.counters(sender_->progress(), estimate());
}

}  // namespace ckpt::mover
