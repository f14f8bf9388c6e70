// SPDX-License-Identifier: Apache-2.0
#include "agent/mover_client/mover_process.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>

namespace ckpt::agent {
namespace {

// Returns the session to which a message belongs. Returns nothing for messages about the whole mover.
std::optional<mover::SessionKey> session_of(const mover::Message& message) {
  return std::visit(
      [](const auto& body) -> std::optional<mover::SessionKey> {
        if constexpr (requires { body.session; }) {
          return body.session;
        } else {
          return std::nullopt;
        }
      },
      message);
}

}  // namespace

MoverProcess::MoverProcess(const asio::any_io_executor& executor, MoverSettings settings)
    : executor_(executor),
      settings_(std::move(settings)),
      restart_(executor),
      backoff_(settings_.first_backoff) {}

std::shared_ptr<MoverProcess> MoverProcess::create(const asio::any_io_executor& executor,
                                                   MoverSettings settings) {
  return std::shared_ptr<MoverProcess>(new MoverProcess(executor, std::move(settings)));
}

MoverProcess::~MoverProcess() {
  if (link_) link_->close();
}

void MoverProcess::start() {
  if (state_ != State::kIdle) return;
  if (auto launched = launch(); !launched) on_gone(launched.error());
}

Result<void> MoverProcess::launch() {
  const std::uint64_t run = ++run_;
  ++starts_;
  state_ = State::kStarting;
  drop_reason_.reset();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
    return Error::from_errno("Cannot create a mover's socket");
  }
  UniqueFd mine(ends[0]);
  UniqueFd theirs(ends[1]);
  ProcessSpec spec;
  spec.argv = {settings_.program};
  spec.output_path = settings_.log_path;
  spec.inherited = theirs.get();
  auto ended = [weak = weak_from_this(), run, log = settings_.log_path](int status) {
    auto self = weak.lock();
    if (!self || self->run_ != run) return;
    Error end(ErrorCode::kUnavailable,
              "The mover terminated with " + describe_wait_status(status) + "; see " + log);
    if (self->drop_reason_)
      end = Error(ErrorCode::kUnavailable, "The mover was stopped").caused_by(*self->drop_reason_);
    self->on_gone(end);
  };
  CKPT_TRY(process, ChildProcess::start(executor_, spec, std::move(ended)));
  process_ = process;
  MoverLink::Handlers handlers;
  handlers.message = [weak = weak_from_this(), run](mover::Packet packet) {
    if (auto self = weak.lock(); self && self->run_ == run) self->on_message(std::move(packet));
  };
  // An end of file on the link gives no reason for the failure. The exit status that follows gives the
  // reason. A mover that sends invalid messages, or reads none, is killed.
  handlers.closed = [weak = weak_from_this(), run](Error error) {
    auto self = weak.lock();
    if (!self || self->run_ != run) return;
    if (error.code() != ErrorCode::kUnavailable) self->drop_reason_ = std::move(error);
    self->process_->signal(SIGKILL);
  };
  CKPT_TRY(link, MoverLink::create(executor_, std::move(mine), std::move(handlers)));
  link_ = link;
  return link_->send(settings_.configure);
}

void MoverProcess::on_message(mover::Packet packet) {
  if (const auto* ready = std::get_if<mover::MoverReady>(&packet.message)) {
    spdlog::info("mover started: gpu {} pid {} device \"{}\" free_bytes {}", settings_.configure.gpu,
                 process_->pid(), ready->device_name, ready->free_bytes);
    state_ = State::kServing;
    backoff_ = settings_.first_backoff;
    return wake();
  }
  if (const auto* failed = std::get_if<mover::MoverFailed>(&packet.message)) {
    return on_gone(failed->failure.to_error());
  }
  const auto session = session_of(packet.message);
  if (!session) return;
  auto it = subscribers_.find(*session);
  if (it == subscribers_.end()) return;
  auto handler = it->second.message;  // copied, because the handler may unsubscribe
  handler(std::move(packet));
}

void MoverProcess::on_gone(const Error& error) {
  if (state_ == State::kStopped) return;
  ++run_;
  spdlog::error("mover exited: gpu {} reason {}", settings_.configure.gpu, error.to_string());
  last_error_ = error;
  state_ = State::kWaiting;
  if (link_) link_->close();
  link_.reset();
  if (process_) process_->signal(SIGKILL);
  process_.reset();
  wake();
  for (auto& [session, subscriber] : std::exchange(subscribers_, {})) subscriber.died(error);
  restart_.expires_after(backoff_);
  backoff_ = std::min(backoff_ * 2, settings_.max_backoff);
  restart_.async_wait([weak = weak_from_this()](boost::system::error_code cancelled) {
    auto self = weak.lock();
    if (cancelled || !self || self->state_ != State::kWaiting) return;
    self->state_ = State::kIdle;
    self->start();
  });
}

Task<Result<void>> MoverProcess::ready(Milliseconds timeout) {
  auto self = shared_from_this();
  const auto until = std::chrono::steady_clock::now() + timeout;
  if (state_ == State::kWaiting) {  // a call cancels the backoff, because a migration must not wait for a
                                    // long one
    restart_.cancel();
    state_ = State::kIdle;
  }
  start();
  while (state_ == State::kStarting) {
    AsyncEvent signal(executor_);
    auto place = waiting_.insert(waiting_.end(), &signal);
    const bool woken = co_await signal.wait(until);
    waiting_.erase(place);
    if (!woken)
      co_return Error(ErrorCode::kTimedOut, "The mover did not become ready; see " + settings_.log_path);
  }
  if (state_ == State::kServing) co_return ok();
  co_return Error(ErrorCode::kUnavailable,
                  "There is no mover for GPU " + std::to_string(settings_.configure.gpu))
      .caused_by(last_error_);
}

void MoverProcess::wake() {
  for (AsyncEvent* signal : waiting_) signal->notify();
}

void MoverProcess::subscribe(mover::SessionKey session, Subscriber subscriber) {
  subscribers_[session] = std::move(subscriber);
}

void MoverProcess::unsubscribe(mover::SessionKey session) {
  subscribers_.erase(session);
}

Result<void> MoverProcess::send(const mover::Message& message, std::vector<UniqueFd> descriptors) {
  if (state_ != State::kServing) return Error(ErrorCode::kUnavailable, "The mover is not running");
  return link_->send(message, std::move(descriptors));
}

void MoverProcess::stop() {
  state_ = State::kStopped;
  ++run_;
  restart_.cancel();
  if (link_) link_->close();
  link_.reset();
  wake();
}

}  // namespace ckpt::agent
