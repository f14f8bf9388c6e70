// SPDX-License-Identifier: Apache-2.0
#include "agent/context_helper/context_helper.h"

#include <signal.h>
#include <sys/socket.h>

#include <algorithm>

#include "libckpt/net/control/log.h"

namespace ckpt::agent {
namespace {

constexpr Milliseconds kLockGrace{5000};  // time added to a lock's timeout, so that the driver's own timeout
                                          // expires before the agent's
constexpr int kChangesGpu = 13000;        // CUDA 13.0 added gpuPairs

std::chrono::steady_clock::time_point after(Milliseconds timeout) {
  return std::chrono::steady_clock::now() + timeout;
}

std::string subject(const context::Order& order) {
  return std::string("The driver's ") + context::name_of(order.kind) + " of process " +
         std::to_string(order.pid);
}

}  // namespace

std::string ContextFacts::missing_support() const {
  const std::string version =
      std::to_string(driver_version / 1000) + "." + std::to_string(driver_version % 1000 / 10);
  if (!can_checkpoint)
    return "the CUDA driver (for CUDA " + version +
           ") has no cuCheckpointProcess functions: driver 570 or newer is needed";
  if (!can_change_gpu)
    return "the CUDA driver (for CUDA " + version +
           ") can restore a process only on the GPU on which it was saved: driver 580 or newer is needed";
  return {};
}

struct ContextHelper::Pending {
  Pending(const asio::any_io_executor& executor, const context::Order& its_order)
      : order(its_order), changed(executor) {}
  context::Order order;
  bool sent = false;
  std::optional<Result<context::Answer>> outcome;
  AsyncEvent changed;  // notified when the order was sent or its outcome is known
};

ContextHelper::ContextHelper(const asio::any_io_executor& executor, ContextSettings settings)
    : executor_(executor),
      settings_(std::move(settings)),
      restart_(executor),
      backoff_(settings_.first_backoff) {}

std::shared_ptr<ContextHelper> ContextHelper::create(const asio::any_io_executor& executor,
                                                     ContextSettings settings) {
  return std::shared_ptr<ContextHelper>(new ContextHelper(executor, std::move(settings)));
}

ContextHelper::~ContextHelper() {
  if (link_) link_->close();
}

void ContextHelper::start() {
  if (state_ != State::kIdle) return;
  if (auto launched = launch(); !launched) on_gone(launched.error(), false);
}

Result<void> ContextHelper::launch() {
  const std::uint64_t run = ++run_;
  state_ = State::kStarting;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return Error::from_errno("Cannot create the context helper's socket");
  UniqueFd mine(ends[0]);
  UniqueFd theirs(ends[1]);
  ProcessSpec spec;
  spec.argv = {settings_.program};
  spec.environment = settings_.environment;
  spec.output_path = settings_.log_path;
  spec.inherited = theirs.get();
  spec.own_session = true;  // Ctrl-C in the agent's terminal must not interrupt a checkpoint
  auto ended = [weak = weak_from_this(), run, log = settings_.log_path](int status) {
    auto self = weak.lock();
    if (!self || self->run_ != run) return;
    self->ended_.emplace(ErrorCode::kUnavailable, "The context helper terminated with " +
                                                      describe_wait_status(status) + "; see " + log);
    self->on_half_gone();
  };
  ended_.reset();
  link_closed_ = false;
  CKPT_TRY(process, ChildProcess::start(executor_, spec, std::move(ended)));
  process_ = process;
  CKPT_TRY(link, PacketLink::create(executor_, std::move(mine), context::kMaxAnswerBytes));
  link_ = link;
  PacketLink::Handlers handlers;
  handlers.packet = [weak = weak_from_this(), run](const Packet& packet) {
    if (auto self = weak.lock(); self && self->run_ == run) self->on_packet(packet);
  };
  // An end of file on the link gives no reason for the failure. The exit status that follows gives the
  // reason, unless the last packet already contains it. A helper that sends malformed packets is killed.
  handlers.closed = [weak = weak_from_this(), run](const Error& error) {
    auto self = weak.lock();
    if (!self || self->run_ != run) return;
    if (error.code() == ErrorCode::kProtocol)
      spdlog::error("connection to the context helper closed: reason {}", error.to_string());
    self->process_->signal(SIGKILL);
    self->link_closed_ = true;
    self->on_half_gone();
  };
  link_->start(std::move(handlers));
  return ok();
}

// Reports the helper as gone once it has exited and its link is closed. The exit may be detected before the
// packets that were sent earlier.
void ContextHelper::on_half_gone() {
  if (ended_ && link_closed_) on_gone(Error(*ended_), true);
}

void ContextHelper::on_packet(const Packet& packet) {
  const auto answer = context::parse_answer(packet.bytes);
  if (!answer) return on_gone(answer.error(), true);
  const context::Answer& message = *answer;
  if (message.kind == context::Kind::kReady && state_ == State::kStarting) return on_ready(message);
  if (queue_.empty() || !queue_.front()->sent || queue_.front()->order.id != message.id ||
      queue_.front()->order.kind != message.kind) {
    return on_gone(
        Error(ErrorCode::kProtocol, "The context helper sent a response that does not match any request"),
        true);
  }
  auto pending = queue_.front();
  queue_.pop_front();
  pending->outcome.emplace(message);
  pending->changed.notify();
  send_next();
}

void ContextHelper::on_ready(const context::Answer& answer) {
  // The helper sends the reason and exits. A later call may succeed, but the helper is not restarted without
  // a call.
  if (answer.code != 0) return on_gone(context::error_of(answer), false);
  facts_.driver_version = answer.value;
  facts_.devices = answer.device_count;
  facts_.gpu = answer.text;
  facts_.can_checkpoint = answer.can_checkpoint;
  facts_.can_change_gpu = facts_.can_checkpoint && answer.value >= kChangesGpu;
  spdlog::info("context helper started: pid {} driver_version {} devices {} can_checkpoint {}",
               process_->pid(), facts_.driver_version, facts_.devices, facts_.can_checkpoint);
  state_ = State::kServing;
  backoff_ = settings_.first_backoff;
  wake();
}

void ContextHelper::on_gone(Error error, bool start_again) {
  if (state_ == State::kStopped) return;
  ++run_;
  if (start_again) {
    spdlog::error("context helper exited: reason {}", error.to_string());
  } else {
    spdlog::info("context helper unavailable: reason {}", error.to_string());
  }
  last_error_ = std::move(error);
  state_ = start_again ? State::kWaiting : State::kIdle;
  if (process_)
    process_->signal(SIGKILL);  // kills the process at once, before it detects that its socket is
                                // closed and exits by itself
  process_.reset();
  if (link_) link_->close();
  link_.reset();
  fail_pending(last_error_);
  wake();
  if (!start_again) return;
  restart_.expires_after(backoff_);
  backoff_ = std::min(backoff_ * 2, settings_.max_backoff);
  restart_.async_wait([weak = weak_from_this()](boost::system::error_code cancelled) {
    auto self = weak.lock();
    if (cancelled || !self || self->state_ != State::kWaiting) return;
    self->state_ = State::kIdle;
    self->start();
  });
}

void ContextHelper::fail_pending(const Error& error) {
  for (const auto& pending : std::exchange(queue_, {})) {
    const std::string effect = pending->sent ? ": it is unknown whether it took effect" : " was not started";
    pending->outcome.emplace(Error(error.code(), subject(pending->order) + effect).caused_by(error));
    pending->changed.notify();
  }
}

void ContextHelper::wake() {
  for (AsyncEvent* signal : waiting_) signal->notify();
}

Task<Result<ContextFacts>> ContextHelper::ready() {
  auto self = shared_from_this();
  const auto until = after(settings_.start_timeout);
  if (state_ == State::kWaiting) {  // a call cancels the backoff, because a migration must not wait for a
                                    // long one
    restart_.cancel();
    state_ = State::kIdle;
  }
  start();
  while (state_ == State::kStarting) {
    AsyncEvent signal(executor_);
    waiting_.push_back(&signal);
    const bool woken = co_await signal.wait(until);
    std::erase(waiting_, &signal);
    if (!woken && state_ == State::kStarting) {
      on_gone(Error(ErrorCode::kTimedOut,
                    "The CUDA driver did not start in the context helper; see " + settings_.log_path),
              false);
    }
  }
  if (state_ == State::kServing) co_return facts_;
  co_return last_error_;
}

void ContextHelper::send_next() {
  if (state_ != State::kServing || queue_.empty() || queue_.front()->sent) return;
  Pending& next = *queue_.front();
  next.sent = true;
  Packet packet;
  packet.bytes = wire::encode(next.order);
  link_->send(std::move(packet));
  next.changed.notify();
}

Task<Result<context::Answer>> ContextHelper::perform(context::Order order, Milliseconds timeout) {
  auto self = shared_from_this();
  CKPT_CO_TRY(facts, co_await ready());
  if (!facts.can_checkpoint)
    co_return Error(ErrorCode::kNotSupported, subject(order))
        .caused_by({ErrorCode::kNotSupported, facts.missing_support()});
  order.id = next_order_++;
  auto pending = std::make_shared<Pending>(executor_, order);
  queue_.push_back(pending);
  send_next();
  auto until = std::chrono::steady_clock::time_point::max();
  bool timed = false;
  while (!pending->outcome) {
    if (pending->sent && !timed) {  // the time of an order begins when the helper receives it
      until = after(timeout);
      timed = true;
    }
    const bool woken = co_await pending->changed.wait(until);
    if (woken || pending->outcome) continue;
    // The helper hangs in the driver, so every other order needs a new helper.
    on_gone(Error(ErrorCode::kTimedOut,
                  "The context helper did not answer within " + std::to_string(timeout.count()) + " ms"),
            true);
  }
  CKPT_CO_TRY(answer, std::move(*pending->outcome));
  if (answer.code != 0) co_return context::error_of(answer);
  co_return answer;
}

Task<Result<void>> ContextHelper::perform_plain(context::Kind kind, pid_t pid, Milliseconds timeout) {
  context::Order order;
  order.kind = kind;
  order.pid = pid;
  CKPT_CO_TRYV(co_await perform(order, timeout));
  co_return ok();
}

Task<Result<context::ProcessState>> ContextHelper::state(pid_t pid, Milliseconds timeout) {
  context::Order order;
  order.kind = context::Kind::kState;
  order.pid = pid;
  CKPT_CO_TRY(answer, co_await perform(order, timeout));
  co_return static_cast<context::ProcessState>(answer.value);
}

Task<Result<void>> ContextHelper::lock(pid_t pid, Milliseconds timeout) {
  context::Order order;
  order.kind = context::Kind::kLock;
  order.pid = pid;
  order.timeout_ms = static_cast<std::uint32_t>(std::clamp<std::int64_t>(timeout.count(), 1, 3'600'000));
  CKPT_CO_TRYV(co_await perform(order, timeout + kLockGrace));
  co_return ok();
}

Task<Result<void>> ContextHelper::checkpoint(pid_t pid, Milliseconds timeout) {
  co_return co_await perform_plain(context::Kind::kCheckpoint, pid, timeout);
}

Task<Result<void>> ContextHelper::restore(pid_t pid, std::vector<context::GpuPair> pairs,
                                          Milliseconds timeout) {
  context::Order order;
  order.kind = context::Kind::kRestore;
  order.pid = pid;
  if (pairs.size() > context::kMaxPairs)
    co_return Error(
        ErrorCode::kInvalidArgument,
        "A process that uses more than " + std::to_string(context::kMaxPairs) + " GPUs cannot be restored");
  order.pairs = std::move(pairs);
  CKPT_CO_TRYV(co_await perform(order, timeout));
  co_return ok();
}

Task<Result<void>> ContextHelper::unlock(pid_t pid, Milliseconds timeout) {
  co_return co_await perform_plain(context::Kind::kUnlock, pid, timeout);
}

Task<Result<pid_t>> ContextHelper::restore_thread(pid_t pid, Milliseconds timeout) {
  context::Order order;
  order.kind = context::Kind::kRestoreThread;
  order.pid = pid;
  CKPT_CO_TRY(answer, co_await perform(order, timeout));
  co_return static_cast<pid_t>(answer.value);
}

void ContextHelper::stop() {
  if (state_ == State::kStopped) return;
  state_ = State::kStopped;
  ++run_;
  restart_.cancel();
  last_error_ = Error(ErrorCode::kAborted, "The agent is shutting down");
  if (link_) link_->close();
  link_.reset();
  fail_pending(last_error_);
  wake();
}

}  // namespace ckpt::agent
