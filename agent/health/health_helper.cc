// SPDX-License-Identifier: Apache-2.0
#include "agent/health/health_helper.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>

namespace ckpt::agent {
namespace {

constexpr std::size_t kMaxAbandoned = 3;

}  // namespace

HealthHelper::HealthHelper(const asio::any_io_executor& executor, HealthHelperSettings settings,
                           Handlers handlers)
    : executor_(executor),
      settings_(std::move(settings)),
      handlers_(std::move(handlers)),
      heartbeat_(executor),
      restart_(executor),
      backoff_(settings_.first_backoff) {}

std::shared_ptr<HealthHelper> HealthHelper::create(const asio::any_io_executor& executor,
                                                   HealthHelperSettings settings, Handlers handlers) {
  return std::shared_ptr<HealthHelper>(new HealthHelper(executor, std::move(settings), std::move(handlers)));
}

HealthHelper::~HealthHelper() {
  if (link_) link_->close();
}

void HealthHelper::start() {
  if (stopped_ || process_) return;
  std::erase_if(abandoned_, [](const auto& process) { return !process->running(); });
  if (abandoned_.size() >= kMaxAbandoned) return restart_later();
  if (auto launched = launch(); !launched) on_gone(launched.error());
}

Result<void> HealthHelper::launch() {
  const std::uint64_t run = ++run_;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return Error::from_errno("Cannot create the health helper's socket");
  UniqueFd mine(ends[0]);
  UniqueFd theirs(ends[1]);
  ProcessSpec spec;
  spec.argv = {settings_.program, "--nvml", settings_.library, "--poll-ms",
               std::to_string(settings_.poll.count())};
  spec.output_path = settings_.log_path;
  spec.inherited = theirs.get();
  auto ended = [weak = weak_from_this(), run](int status) {
    auto self = weak.lock();
    if (!self || self->run_ != run) return;
    self->on_gone(
        Error(ErrorCode::kUnavailable, "The health helper terminated with " + describe_wait_status(status)));
  };
  CKPT_TRY(process, ChildProcess::start(executor_, spec, std::move(ended)));
  process_ = process;
  CKPT_TRY(link, PacketLink::create(executor_, std::move(mine), nvml_watch::kMaxReportBytes));
  link_ = link;
  PacketLink::Handlers handlers;
  handlers.packet = [weak = weak_from_this(), run](const Packet& packet) {
    if (auto self = weak.lock(); self && self->run_ == run) self->on_packet(packet);
  };
  // An end of file on the link gives no reason for the failure. The exit status that follows gives the
  // reason.
  handlers.closed = [weak = weak_from_this(), run](const Error& error) {
    auto self = weak.lock();
    if (!self || self->run_ != run || error.code() != ErrorCode::kProtocol) return;
    self->on_gone(error);
  };
  link_->start(std::move(handlers));
  ready_ = false;
  watch_heartbeat();
  return ok();
}

void HealthHelper::on_packet(const Packet& packet) {
  auto report = nvml_watch::parse_report(packet.bytes);
  if (!report) return on_gone(report.error());
  const nvml_watch::Report& said = *report;
  if (said.kind == nvml_watch::Kind::kFailed) {
    if (std::exchange(last_failure_, said.text) != said.text)
      spdlog::info("GPU events unavailable: reason {}", said.text);
    return;  // the helper exits without further messages
  }
  if (said.kind == nvml_watch::Kind::kHeartbeat || said.kind == nvml_watch::Kind::kReady) {
    ready_ = true;
    if (said.kind == nvml_watch::Kind::kHeartbeat) backoff_ = settings_.first_backoff;
    watch_heartbeat();
    if (said.kind == nvml_watch::Kind::kHeartbeat && std::exchange(silent_, false)) {
      spdlog::info("the GPU driver answers again");
      handlers_.answers();
    }
    if (said.kind == nvml_watch::Kind::kHeartbeat) return;
  }
  handlers_.report(said);
}

void HealthHelper::watch_heartbeat() {
  const Milliseconds silence =
      ready_ ? settings_.silence : std::max(settings_.silence, settings_.start_silence);
  heartbeat_.expires_after(silence);
  heartbeat_.async_wait([weak = weak_from_this(), run = run_, silence](boost::system::error_code cancelled) {
    auto self = weak.lock();
    if (cancelled || !self || self->run_ != run || self->stopped_) return;
    const auto late = std::chrono::steady_clock::now() - self->heartbeat_.expiry();
    if (late < Milliseconds(0))
      return;  // a report arrived after the timer expired and before this function
               // ran
    // If the agent itself was delayed, it has not read reports in the meantime, and the helper may have been
    // delayed, too. The silence then does not count.
    if (late > silence / 2) return self->watch_heartbeat();
    self->on_silence();
  });
}

void HealthHelper::on_silence() {
  spdlog::error("the GPU driver does not answer, so the health helper was abandoned: pid {}", pid());
  drop_process();
  if (!std::exchange(silent_, true)) handlers_.silent();
  restart_later();
}

void HealthHelper::on_gone(const Error& error) {
  if (stopped_) return;
  if (last_failure_.empty()) spdlog::warn("health helper exited: reason {}", error.to_string());
  drop_process();
  restart_later();
}

void HealthHelper::drop_process() {
  ++run_;
  heartbeat_.cancel();
  if (process_)
    process_->signal(SIGKILL);  // the signal may have no effect; it is sent at once, before the helper
                                // detects the closed socket and exits by itself
  if (link_) link_->close();
  link_.reset();
  if (process_) abandoned_.push_back(std::exchange(process_, nullptr));
}

void HealthHelper::restart_later() {
  restart_.expires_after(backoff_);
  backoff_ = std::min(backoff_ * 2, settings_.max_backoff);
  restart_.async_wait([weak = weak_from_this()](boost::system::error_code cancelled) {
    if (auto self = weak.lock(); !cancelled && self) self->start();
  });
}

void HealthHelper::renew() {
  if (stopped_ || !process_) return;
  drop_process();
  start();
}

void HealthHelper::stop() {
  stopped_ = true;
  ++run_;
  heartbeat_.cancel();
  restart_.cancel();
  if (link_) link_->close();
  link_.reset();
  handlers_ = {};
}

}  // namespace ckpt::agent
