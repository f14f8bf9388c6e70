// SPDX-License-Identifier: Apache-2.0
#include "agent/mover_client/mover_session.h"

#include <algorithm>

namespace ckpt::agent {
namespace {

std::chrono::steady_clock::time_point after(Milliseconds timeout) {
  return std::chrono::steady_clock::now() + timeout;
}

}  // namespace

MoverSession::MoverSession(const asio::any_io_executor& executor, std::shared_ptr<MoverProcess> process,
                           mover::SessionKey key, Milliseconds timeout, Handlers handlers)
    : process_(std::move(process)),
      key_(key),
      timeout_(timeout),
      handlers_(std::move(handlers)),
      memory_(executor),
      listening_(executor),
      ended_(executor) {}

Result<std::shared_ptr<MoverSession>> MoverSession::open(const asio::any_io_executor& executor,
                                                         std::shared_ptr<MoverProcess> process,
                                                         mover::OpenSession request, Milliseconds timeout,
                                                         Handlers handlers) {
  std::shared_ptr<MoverSession> session(
      new MoverSession(executor, process, request.session, timeout, std::move(handlers)));
  MoverProcess::Subscriber subscriber;
  subscriber.message = [weak = std::weak_ptr(session)](mover::Packet packet) {
    if (auto self = weak.lock()) self->on_message(std::move(packet));
  };
  subscriber.died = [weak = std::weak_ptr(session)](Error error) {
    auto self = weak.lock();
    if (!self) return;
    self->dead_ = true;
    self->fail(error);
  };
  CKPT_TRYV(process->send(request));
  process->subscribe(request.session, std::move(subscriber));
  return session;
}

MoverSession::~MoverSession() {
  process_->unsubscribe(key_);
}

void MoverSession::on_message(mover::Packet packet) {
  if (const auto* attached = std::get_if<mover::Attached>(&packet.message)) {
    attached_ = std::max(attached_, attached->batch);
    return memory_.notify();
  }
  if (const auto* dropped = std::get_if<mover::Dropped>(&packet.message)) {
    dropped_.insert(dropped->regions.begin(), dropped->regions.end());
    return memory_.notify();
  }
  if (auto* listening = std::get_if<mover::Listening>(&packet.message)) {
    addresses_ = std::move(listening->addresses);
    return listening_.notify();
  }
  if (std::holds_alternative<mover::SessionEnded>(packet.message)) {
    over_ = true;
    if (!failure_) failure_ = Error(ErrorCode::kAborted, "The mover's session has ended");
    memory_.notify();
    listening_.notify();
    return ended_.notify();
  }
  if (const auto* failed = std::get_if<mover::SessionFailed>(&packet.message))
    return fail(failed->failure.to_error());
  if (handlers_.event) {
    auto handler = handlers_.event;
    handler(std::move(packet));
  }
}

void MoverSession::fail(const Error& error) {
  memory_.notify();
  listening_.notify();
  if (dead_) ended_.notify();
  if (failure_) return;
  failure_ = error;
  auto handler = handlers_.failed;
  if (handler) handler(error);
}

Error MoverSession::failure_or_timeout(const char* what) const {
  if (failure_) return *failure_;
  return Error(ErrorCode::kTimedOut, std::string("The mover did not ") + what + " within " +
                                         std::to_string(timeout_.count()) + " ms");
}

Task<Result<void>> MoverSession::attach_regions(std::vector<mover::RegionInfo> regions,
                                                std::vector<UniqueFd> descriptors) {
  auto self = shared_from_this();
  if (failure_) co_return *failure_;
  mover::AttachRegions message;
  message.session = key_;
  message.batch = ++batches_;
  message.regions = std::move(regions);
  const std::uint64_t batch = message.batch;
  CKPT_CO_TRYV(process_->send(message, std::move(descriptors)));
  const auto until = after(timeout_);
  while (attached_ < batch && !failure_) {
    if (!co_await memory_.wait(until)) break;
  }
  if (attached_ >= batch) co_return ok();
  co_return failure_or_timeout("import the job's memory");
}

Task<Result<void>> MoverSession::drop_regions(std::vector<std::uint64_t> regions) {
  auto self = shared_from_this();
  if (dead_ || over_) co_return ok();
  mover::DropRegions message;
  message.session = key_;
  message.regions = regions;
  CKPT_CO_TRYV(process_->send(message));
  const auto all_dropped = [&] {
    return std::all_of(regions.begin(), regions.end(),
                       [&](std::uint64_t id) { return dropped_.contains(id); });
  };
  const auto until = after(timeout_);
  while (!all_dropped() && !dead_ && !over_) {
    if (!co_await memory_.wait(until)) co_return failure_or_timeout("release freed memory");
  }
  for (std::uint64_t id : regions) dropped_.erase(id);
  co_return ok();
}

Result<void> MoverSession::attach_tensors(std::vector<wire::TensorInfo> tensors) {
  for (std::size_t from = 0; from < tensors.size(); from += mover::kMaxTensors) {
    const std::size_t to = std::min(from + mover::kMaxTensors, tensors.size());
    mover::AttachTensors message;
    message.session = key_;
    message.tensors.assign(std::make_move_iterator(tensors.begin() + static_cast<std::ptrdiff_t>(from)),
                           std::make_move_iterator(tensors.begin() + static_cast<std::ptrdiff_t>(to)));
    CKPT_TRYV(process_->send(message));
  }
  return ok();
}

Result<void> MoverSession::drop_tensors(std::vector<std::string> names) {
  mover::DropTensors message;
  message.session = key_;
  message.names = std::move(names);
  return process_->send(message);
}

Task<Result<std::vector<std::string>>> MoverSession::listen() {
  auto self = shared_from_this();
  if (failure_) co_return *failure_;
  CKPT_CO_TRYV(send(mover::StartTarget{}));
  const auto until = after(timeout_);
  while (!addresses_ && !failure_) {
    if (!co_await listening_.wait(until)) break;
  }
  if (addresses_) co_return *addresses_;
  co_return failure_or_timeout("listen");
}

Task<void> MoverSession::end(std::string reason) {
  auto self = shared_from_this();
  if (dead_ || over_) co_return;
  mover::EndSession order;
  order.reason = std::move(reason);
  if (!send(order)) co_return;
  const auto until = after(timeout_);
  while (!dead_ && !over_) {
    if (!co_await ended_.wait(until)) break;
  }
}

}  // namespace ckpt::agent
