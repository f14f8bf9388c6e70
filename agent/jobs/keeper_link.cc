// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/keeper_link.h"

#include <algorithm>

#include "libckpt/inprocess/local/socket.h"

namespace ckpt::agent {
namespace {

constexpr std::size_t kMaxRegions = 1u << 16;
constexpr std::size_t kMaxHeld =
    local::kMaxDescriptors / 2;  // half, because each region goes to a mover together with a second
                                 // descriptor

std::chrono::steady_clock::time_point after(Milliseconds timeout) {
  return std::chrono::steady_clock::now() + timeout;
}

Error cannot_send(const local::Body& body, std::size_t descriptors) {
  return Error(ErrorCode::kInvalidArgument,
               std::string(local::to_string(local::type_of(body))) + " with " + std::to_string(descriptors) +
                   " descriptors was not sent to the keeper: one message holds 1 to " +
                   std::to_string(local::kMaxRecords) + " records and at most " +
                   std::to_string(local::kMaxDescriptors) + " descriptors; split the message");
}

Error gone() {
  return Error(ErrorCode::kUnavailable, "The keeper of this job has exited");
}

}  // namespace

KeeperLink::Exchange::Exchange(std::shared_ptr<KeeperLink> link)
    : link_(std::move(link)), request_(link_->next_request_++), arrived_(link_->executor_) {
  link_->exchanges_[request_] = this;
}

KeeperLink::Exchange::~Exchange() {
  link_->exchanges_.erase(request_);
}

void KeeperLink::Exchange::send(local::Body body, std::vector<UniqueFd> descriptors) {
  local::Message message;
  message.request = request_;
  message.body = std::move(body);
  auto bytes = local::encode(message);
  if (!bytes || descriptors.size() > local::kMaxDescriptors) {
    unsent_ = cannot_send(message.body, descriptors.size());
    return arrived_.notify();
  }
  Packet packet;
  packet.bytes = *std::move(bytes);
  packet.descriptors = std::move(descriptors);
  link_->packets_->send(std::move(packet));
}

Task<Result<KeeperMessage>> KeeperLink::Exchange::next(Milliseconds timeout) {
  const auto until = after(timeout);
  while (answers_.empty()) {
    if (unsent_) co_return *unsent_;
    if (cancelled_) co_return Error(ErrorCode::kAborted, "The request to the keeper was canceled");
    if (!link_->is_open()) co_return gone();
    if (!co_await arrived_.wait(until) && answers_.empty()) {
      co_return Error(ErrorCode::kTimedOut,
                      "The keeper did not answer within " + std::to_string(timeout.count()) + " ms");
    }
  }
  KeeperMessage answer = std::move(answers_.front());
  answers_.pop_front();
  if (const auto* failed = std::get_if<local::Failed>(&answer.message.body))
    co_return local::to_error(*failed);
  co_return std::move(answer);
}

void KeeperLink::Exchange::cancel() {
  cancelled_ = true;
  arrived_.notify();
}

KeeperLink::KeeperLink(const asio::any_io_executor& executor, std::shared_ptr<PacketLink> packets,
                       Milliseconds timeout, Handlers handlers)
    : executor_(executor), packets_(std::move(packets)), timeout_(timeout), handlers_(std::move(handlers)) {}

Result<std::shared_ptr<KeeperLink>> KeeperLink::connect(const asio::any_io_executor& executor,
                                                        const std::string& socket_path, Milliseconds timeout,
                                                        Handlers handlers) {
  CKPT_TRY(socket, local::Socket::connect_at_once(socket_path));
  CKPT_TRY(packets, PacketLink::create(executor, socket.release(), local::kMaxMessageBytes));
  std::shared_ptr<KeeperLink> link(
      new KeeperLink(executor, std::move(packets), timeout, std::move(handlers)));
  link->start();
  return link;
}

void KeeperLink::start() {
  PacketLink::Handlers handlers;
  handlers.packet = [weak = weak_from_this()](Packet packet) {
    if (auto self = weak.lock()) self->on_packet(std::move(packet));
  };
  handlers.closed = [weak = weak_from_this()](Error error) {
    if (auto self = weak.lock()) self->on_closed(std::move(error));
  };
  packets_->start(std::move(handlers));
}

void KeeperLink::on_packet(Packet packet) {
  auto message = local::parse(packet.bytes, packet.descriptors.size());
  if (!message) {
    packets_->close();
    return on_closed(std::move(message).error());
  }
  KeeperMessage received;
  received.message = *std::move(message);
  received.descriptors = std::move(packet.descriptors);
  if (received.message.request == 0) {
    auto handler = handlers_.event;
    if (handler) handler(received.message);
    return;
  }
  auto it = exchanges_.find(received.message.request);
  if (it == exchanges_.end()) return;  // a late answer to a request that was abandoned
  it->second->answers_.push_back(std::move(received));
  it->second->arrived_.notify();
}

void KeeperLink::on_closed(Error error) {
  for (auto& [request, exchange] : exchanges_) exchange->arrived_.notify();
  auto handler = std::exchange(handlers_, Handlers{}).closed;
  if (handler) handler(std::move(error));
}

void KeeperLink::close() {
  packets_->close();
  handlers_ = Handlers{};
  for (auto& [request, exchange] : exchanges_) exchange->arrived_.notify();
}

Task<Result<local::Status>> KeeperLink::attach(std::optional<Milliseconds> timeout) {
  Exchange exchange(shared_from_this());
  exchange.send(local::Attach{});
  co_return co_await exchange.expect<local::Status>(timeout.value_or(timeout_));
}

Task<Result<JobDescription>> KeeperLink::describe() {
  Exchange exchange(shared_from_this());
  exchange.send(local::Describe{});
  JobDescription description;
  for (;;) {
    auto answer = co_await exchange.next(timeout_);
    if (!answer) co_return std::move(answer).error();
    local::Body& body = answer->message.body;
    if (auto* tensors = std::get_if<local::Tensors>(&body)) {
      description.tensors.insert(description.tensors.end(), tensors->records.begin(), tensors->records.end());
    } else if (auto* regions = std::get_if<local::Regions>(&body)) {
      description.regions.insert(description.regions.end(), regions->records.begin(), regions->records.end());
    } else if (auto* end = std::get_if<local::DescribeEnd>(&body)) {
      description.summary = end->summary;
      co_return std::move(description);
    } else {
      co_return Error(ErrorCode::kProtocol, "The keeper sent an unexpected message inside a description");
    }
    if (description.tensors.size() > kMaxTensors || description.regions.size() > kMaxRegions) {
      co_return Error(ErrorCode::kRefused, "The job has more tensors or regions than can be moved (65536)");
    }
  }
}

std::unique_ptr<KeeperLink::Exchange> KeeperLink::begin_export() {
  auto exchange = std::make_unique<Exchange>(shared_from_this());
  exchange->send(local::Export{});
  return exchange;
}

Task<Result<void>> KeeperLink::simple(local::Body body) {
  Exchange exchange(shared_from_this());
  exchange.send(std::move(body));
  auto done = co_await exchange.expect<local::Done>(timeout_);
  if (!done) co_return std::move(done).error();
  co_return ok();
}

std::unique_ptr<KeeperLink::Exchange> KeeperLink::begin_pause(std::uint64_t at_barrier) {
  auto exchange = std::make_unique<Exchange>(shared_from_this());
  exchange->send(local::Pause{at_barrier});
  return exchange;
}

Task<Result<local::Counted>> KeeperLink::stop_at(std::uint64_t attempt, std::uint64_t barrier) {
  auto self = shared_from_this();
  Exchange exchange(self);
  exchange.send(local::StopAt{attempt, barrier});
  co_return co_await exchange.expect<local::Counted>(timeout_);
}

Task<Result<PausedState>> KeeperLink::finish_pause(Exchange& exchange) {
  auto answer = co_await exchange.next(kNoHurry);
  if (!answer) co_return std::move(answer).error();
  KeeperMessage& message = *answer;
  const auto* paused = std::get_if<local::Paused>(&message.message.body);
  if (!paused || message.descriptors.size() > 1 ||
      (paused->host_state_bytes > 0 && message.descriptors.empty())) {
    co_return Error(ErrorCode::kProtocol,
                    "The keeper did not answer the pause request with the message Paused and the host state");
  }
  PausedState state;
  state.paused = *paused;
  if (!message.descriptors.empty()) state.host_state = std::move(message.descriptors.front());
  co_return std::move(state);
}

Task<Result<void>> KeeperLink::enter_gate(local::Resume resume, UniqueFd host_state) {
  Exchange exchange(shared_from_this());
  resume.into_gate = 1;
  std::vector<UniqueFd> descriptors;
  if (host_state) descriptors.push_back(std::move(host_state));
  exchange.send(resume, std::move(descriptors));
  CKPT_CO_TRYV(co_await exchange.expect<local::InGate>(timeout_));
  co_return ok();
}

Task<Result<RankGroups>> KeeperLink::ask_groups(const local::AskGroups& order, Milliseconds timeout) {
  Exchange exchange(shared_from_this());
  exchange.send(order);
  RankGroups groups;
  while (true) {
    CKPT_CO_TRY(answer, co_await exchange.next(timeout));
    auto* records = std::get_if<local::Groups>(&answer.message.body);
    if (records != nullptr && !groups.records.empty())
      co_return Error(ErrorCode::kProtocol, "The rank listed its groups twice");
    if (records != nullptr) {
      groups.records = std::move(records->records);
      continue;
    }
    const auto* end = std::get_if<local::GroupsEnd>(&answer.message.body);
    if (end == nullptr)
      co_return Error(ErrorCode::kProtocol,
                      "The rank answered the query for its groups with a different message");
    groups.knows_gang = end->knows_gang != 0;
    co_return std::move(groups);
  }
}

Task<Result<void>> KeeperLink::join_groups(local::JoinGroups order, Milliseconds timeout) {
  Exchange exchange(shared_from_this());
  exchange.send(std::move(order));
  CKPT_CO_TRYV(co_await exchange.expect<local::GroupsJoined>(timeout));
  co_return ok();
}

void KeeperLink::discard_groups(std::uint64_t epoch) {
  Exchange exchange(shared_from_this());
  exchange.send(local::DiscardGroups{epoch});
}

Task<Result<local::Running>> KeeperLink::resume(local::Resume resume, UniqueFd host_state) {
  Exchange exchange(shared_from_this());
  std::vector<UniqueFd> descriptors;
  if (host_state) descriptors.push_back(std::move(host_state));
  exchange.send(resume, std::move(descriptors));
  co_return co_await exchange.expect<local::Running>(timeout_);
}

Task<Result<local::Released>> KeeperLink::release(Milliseconds timeout) {
  Exchange exchange(shared_from_this());
  exchange.send(local::Release{});
  co_return co_await exchange.expect<local::Released>(timeout);
}

Task<Result<void>> KeeperLink::deposit(std::uint64_t migration, std::vector<local::RegionRecord> records,
                                       std::vector<UniqueFd> descriptors) {
  Exchange exchange(shared_from_this());
  local::Deposit body;
  body.sequence = exchange.request();
  body.migration = migration;
  body.records = std::move(records);
  exchange.send(local::Body(std::move(body)), std::move(descriptors));
  auto done = co_await exchange.expect<local::Done>(timeout_);
  if (!done) co_return std::move(done).error();
  co_return ok();
}

Task<Result<void>> KeeperLink::withdraw(std::uint64_t migration) {
  local::Withdraw body;
  body.migration = migration;
  co_return co_await simple(local::Body(body));
}

Task<Result<void>> KeeperLink::withdraw_regions(std::uint64_t migration,
                                                std::vector<local::RegionKey> regions) {
  for (std::size_t at = 0; at < regions.size(); at += local::kMaxRecords) {
    const auto begin = regions.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t count = std::min(regions.size() - at, local::kMaxRecords);
    local::WithdrawRegions body;
    body.migration = migration;
    body.records.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
    CKPT_CO_TRYV(co_await simple(local::Body(std::move(body))));
  }
  co_return ok();
}

Task<Result<HeldRegions>> KeeperLink::fetch(local::MemorySet set, std::uint64_t migration,
                                            std::uint64_t from) {
  Exchange exchange(shared_from_this());
  local::Fetch body;
  body.set = set;
  body.migration = migration;
  body.from = from;
  exchange.send(local::Body(body));
  CKPT_CO_TRY(answer, co_await exchange.next(timeout_));
  HeldRegions regions;
  if (std::holds_alternative<local::Done>(answer.message.body)) co_return std::move(regions);
  auto* held = std::get_if<local::Held>(&answer.message.body);
  // parse() has checked that each record has a descriptor.
  if (held == nullptr || held->sequence <= from || held->records.size() > kMaxHeld)
    co_return Error(ErrorCode::kProtocol,
                    "The keeper's answer to a fetch request is not a valid part of its memory sets");
  regions.next = held->sequence;
  regions.records = std::move(held->records);
  regions.descriptors = std::move(answer.descriptors);
  co_return std::move(regions);
}

Task<Result<std::vector<UniqueFd>>> KeeperLink::make(local::Make order, Milliseconds timeout) {
  Exchange exchange(shared_from_this());
  const std::vector<local::RegionKey> asked = order.records;
  exchange.send(local::Body(std::move(order)));
  CKPT_CO_TRY(answer, co_await exchange.next(timeout));
  const auto* made = std::get_if<local::Made>(&answer.message.body);
  const bool same =
      made != nullptr && std::equal(made->records.begin(), made->records.end(), asked.begin(), asked.end(),
                                    [](const auto& record, const auto& key) { return record.id == key.id; });
  if (!same) co_return Error(ErrorCode::kProtocol, "The rank has not created the memory that was requested");
  co_return std::move(answer.descriptors);
}

Task<Result<void>> KeeperLink::replace(std::uint64_t migration, std::vector<local::RegionRecord> records,
                                       std::vector<UniqueFd> descriptors) {
  Exchange exchange(shared_from_this());
  local::Replace body;
  body.sequence = exchange.request();
  body.migration = migration;
  body.records = std::move(records);
  exchange.send(local::Body(std::move(body)), std::move(descriptors));
  auto done = co_await exchange.expect<local::Done>(timeout_);
  if (!done) co_return std::move(done).error();
  co_return ok();
}

Task<Result<local::Mapped>> KeeperLink::map(local::Map map, Milliseconds timeout) {
  Exchange exchange(shared_from_this());
  exchange.send(local::Body(map));
  co_return co_await exchange.expect<local::Mapped>(timeout);
}

Task<Result<void>> KeeperLink::await_memory(Milliseconds timeout) {
  Exchange exchange(shared_from_this());
  exchange.send(local::AwaitMemory{});
  auto done = co_await exchange.expect<local::Done>(timeout);
  // an older keeper does not wait for memory
  if (done || done.error().code() == ErrorCode::kProtocol) co_return ok();
  co_return std::move(done).error();
}

Task<Result<void>> KeeperLink::prepare_dump(Milliseconds timeout) {
  Exchange exchange(shared_from_this());
  exchange.send(local::PrepareDump{});
  auto ready = co_await exchange.expect<local::DumpReady>(timeout);
  if (!ready) co_return std::move(ready).error();
  co_return ok();
}

Task<Result<void>> KeeperLink::reattach(local::Reattach how, Milliseconds timeout) {
  Exchange exchange(shared_from_this());
  exchange.send(how);
  auto done = co_await exchange.expect<local::Done>(timeout);
  if (!done) co_return std::move(done).error();
  co_return ok();
}

Task<Result<void>> KeeperLink::set_deadline(Nanos deadline) {
  local::SetDeadline body;
  body.deadline_ns = deadline;
  co_return co_await simple(local::Body(body));
}

Task<Result<void>> KeeperLink::stop_export() {
  co_return co_await simple(local::Body(local::StopExport{}));
}
Task<Result<void>> KeeperLink::moved() {
  co_return co_await simple(local::Body(local::Moved{}));
}
Task<Result<void>> KeeperLink::kill() {
  co_return co_await simple(local::Body(local::Kill{}));
}
Task<Result<void>> KeeperLink::shut_down() {
  co_return co_await simple(local::Body(local::Shutdown{}));
}

Task<Result<void>> KeeperLink::stop(Milliseconds grace) {
  local::Stop body;
  body.grace_ms = static_cast<std::uint64_t>(grace.count());
  co_return co_await simple(local::Body(body));
}

}  // namespace ckpt::agent
