// SPDX-License-Identifier: Apache-2.0
#include "agent/checkpoint_server/checkpoint_server.h"

#include <signal.h>
#include <sys/socket.h>

#include "libckpt/net/control/log.h"

namespace ckpt::agent {

using checkpoint_store_server::CheckpointStoreOrder;

CheckpointStoreServer::CheckpointStoreServer(const asio::any_io_executor& executor,
                                             CheckpointStoreServerSettings settings)
    : executor_(executor), settings_(std::move(settings)), starting_(executor) {}

std::shared_ptr<CheckpointStoreServer> CheckpointStoreServer::create(const asio::any_io_executor& executor,
                                                                     CheckpointStoreServerSettings settings) {
  return std::shared_ptr<CheckpointStoreServer>(new CheckpointStoreServer(executor, std::move(settings)));
}

CheckpointStoreServer::~CheckpointStoreServer() {
  if (link_) link_->close();
}

Result<void> CheckpointStoreServer::launch() {
  const std::uint64_t run = ++run_;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return Error::from_errno("Cannot create the checkpoint store server's socket");
  UniqueFd mine(ends[0]);
  UniqueFd theirs(ends[1]);
  ProcessSpec spec;
  spec.argv = {settings_.program,
               "--folder",
               settings_.folder,
               "--listen",
               settings_.host + ":" + std::to_string(settings_.port),
               "--node",
               settings_.node};
  if (!settings_.memory.empty()) {
    for (const std::string& word : {std::string("--memory"), settings_.memory, std::string("--memory-limit"),
                                    std::to_string(settings_.memory_limit_bytes)})
      spec.argv.push_back(word);
  }
  spec.output_path = settings_.log_path;
  spec.inherited = theirs.get();
  spec.own_session = true;
  auto ended = [weak = weak_from_this(), run, log = settings_.log_path](int status) {
    auto self = weak.lock();
    if (!self || self->run_ != run) return;
    self->on_gone(Error(ErrorCode::kUnavailable, "The checkpoint store server terminated with " +
                                                     describe_wait_status(status) + "; see " + log));
  };
  CKPT_TRY(process, ChildProcess::start(executor_, spec, std::move(ended)));
  process_ = process;
  CKPT_TRY(link, PacketLink::create(executor_, std::move(mine), checkpoint_store_server::kMaxPacketBytes));
  link_ = link;
  PacketLink::Handlers handlers;
  handlers.packet = [weak = weak_from_this(), run](const Packet& packet) {
    if (auto self = weak.lock(); self && self->run_ == run) self->on_packet(packet);
  };
  handlers.closed = [weak = weak_from_this(), run](const Error& error) {
    if (auto self = weak.lock(); self && self->run_ == run) self->on_gone(error);
  };
  link_->start(std::move(handlers));
  return ok();
}

void CheckpointStoreServer::on_packet(const Packet& packet) {
  auto answer = wire::decode<Answer>(packet.bytes);
  if (!answer) return on_gone(answer.error());
  const auto found = pending_.find(answer->id);
  if (found == pending_.end())
    return on_gone(Error(ErrorCode::kProtocol,
                         "The checkpoint store server sent a response that does not match any request"));
  const Answer& said = *answer;
  const auto code = static_cast<ErrorCode>(said.error_code);
  if (said.error_code == 0)
    found->second->outcome.emplace(said);
  else
    found->second->outcome.emplace(Error(is_known(code) ? code : ErrorCode::kProtocol, said.text));
  found->second->changed.notify();
}

void CheckpointStoreServer::on_gone(const Error& reason) {
  ++run_;
  spdlog::warn("checkpoint store server exited: reason {}", reason.to_string());
  if (link_) link_->close();
  link_.reset();
  if (process_) process_->signal(SIGKILL);
  process_.reset();
  address_.clear();
  for (const auto& [id, pending] : pending_) {
    if (!pending->outcome)
      pending->outcome.emplace(
          Error(ErrorCode::kUnavailable, "This node's checkpoint store server is not running")
              .caused_by(reason));
    pending->changed.notify();
  }
}

Task<Result<CheckpointStoreServer::Answer>> CheckpointStoreServer::wait(std::uint64_t id) {
  const auto pending = pending_.at(id);
  const auto until = std::chrono::steady_clock::now() + settings_.timeout;
  while (!pending->outcome) {
    const bool woken = co_await pending->changed.wait(until);
    if (!woken && !pending->outcome)
      on_gone(Error(ErrorCode::kTimedOut, "The checkpoint store server does not answer"));
  }
  pending_.erase(id);
  co_return std::move(*pending->outcome);
}

Task<Result<void>> CheckpointStoreServer::ready() {
  const AsyncMutex::Held alone = co_await starting_.acquire();
  if (!address_.empty()) co_return ok();
  pending_[0] = std::make_shared<Pending>(executor_);
  if (auto launched = launch(); !launched) on_gone(launched.error());
  CKPT_CO_TRY(listening, co_await wait(0));
  address_ = listening.text;
  spdlog::info("checkpoint store server started: pid {} address {}", process_ ? process_->pid() : 0,
               address_);
  co_return ok();
}

Task<Result<CheckpointStoreServer::Answer>> CheckpointStoreServer::ask(CheckpointStoreOrder order) {
  order.id = next_++;
  pending_[order.id] = std::make_shared<Pending>(executor_);
  Packet packet;
  packet.bytes = wire::encode(order);
  link_->send(std::move(packet));
  co_return co_await wait(order.id);
}

Task<Result<GrantedCheckpointStore>> CheckpointStoreServer::grant(CheckpointStoreOrder order) {
  auto self = shared_from_this();
  CKPT_CO_TRYV(co_await ready());
  if (!link_)
    co_return Error(ErrorCode::kUnavailable, "The checkpoint store server exited; see " + settings_.log_path);
  const std::string address = address_;
  CKPT_CO_TRY(answer, co_await ask(std::move(order)));
  GrantedCheckpointStore granted;
  granted.address = address;
  granted.token = std::move(answer.token);
  co_return granted;
}

Task<Result<void>> CheckpointStoreServer::revoke(std::vector<std::byte> token) {
  auto self = shared_from_this();
  if (!link_ || token.empty()) co_return ok();
  CheckpointStoreOrder order;
  order.revoke = std::move(token);
  CKPT_CO_TRYV(co_await ask(std::move(order)));
  co_return ok();
}

}  // namespace ckpt::agent
