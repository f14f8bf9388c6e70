// SPDX-License-Identifier: Apache-2.0
// Messages to nodes, and requests to nodes with their answers.
//
// A message to a node is sent once the store is durable up to that point. Otherwise a coordinator that lost a
// record in a power failure could send the same order to another node. Messages of a handover are sent at
// once, because the journal decides about handovers. Queries are also sent at once.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kUnavailable if the node is not connected or its connection is lost in the meantime. kTimedOut if the node
// does not answer; the effect is then unknown. Otherwise the agent's answer.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "coordinator/fleet/node_frames.h"
#include "coordinator/fleet/nodes.h"
#include "coordinator/state/store_sync.h"
#include "libckpt/base/clock.h"
#include "libckpt/protocol/gang/gang_plan.h"
#include "libckpt/protocol/gang/gang_records.h"
#include "libckpt/protocol/wire/certificate_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::coordinator {

class NodeCalls {
 public:
  NodeCalls(const NodeTable& nodes, StoreSync& sync, NodeFrames& frames,
            control::asio::any_io_executor executor);
  NodeCalls(const NodeCalls&) = delete;
  NodeCalls& operator=(const NodeCalls&) = delete;

  // Sends a message of a handover at once. Best effort: returns false if the node is not connected.
  bool send(const std::string& node, const wire::CommitMessage& message) { return send_now(node, message); }
  // Relays another node's message to `node`. The message is dropped while more than kMaxBeforeRelay bytes
  // wait for `node`. So a node that sends too many messages cannot terminate another node's connection.
  static constexpr std::size_t kMaxBeforeRelay = std::size_t{1} << 20;
  bool relay(const std::string& node, const wire::CommitMessage& message);
  // Sends a message once the store is durable. If the store does not become durable, nothing is sent and
  // `not_sent` is called. `not_sent` is for callers that would not repeat the message.
  template <class M>
  void send(const std::string& node, const M& message, std::function<void()> not_sent = {}) {
    sync_.when_durable([this, node, message, not_sent = std::move(not_sent)](const Result<void>& stays) {
      if (stays.has_value())
        send_now(node, message);
      else if (not_sent)
        not_sent();
    });
  }

  // Sends a request and waits for its Reply, at most for the given time.
  template <class M>
  control::Task<Result<void>> call(std::string node, M request, std::chrono::milliseconds timeout) {
    CKPT_CO_TRYV(co_await durable(sync_));
    request.request_id = next_request_++;
    auto answer = co_await exchange(node, request, request.request_id, timeout);
    if (!answer) co_return answer.error();
    if (const auto* reply = std::get_if<wire::Reply>(&*answer); reply != nullptr && !reply->ok)
      co_return reply->to_error();
    co_return ok();
  }
  control::Task<Result<wire::LogData>> read_log(std::string node, wire::ReadLog request);
  control::Task<Result<wire::ProcessFacts>> inspect(std::string node, wire::InspectProcess request);
  control::Task<Result<wire::JobFacts>> describe(std::string node, wire::DescribeJob request);
  control::Task<Result<wire::HandoverFacts>> describe(std::string node, wire::DescribeHandover request);
  control::Task<Result<wire::CheckpointStoreGrant>> grant_checkpoint_store(std::string node,
                                                                           wire::GrantCheckpointStore request,
                                                                           std::chrono::milliseconds timeout);
  control::Task<Result<wire::RankGathered>> gather(std::string node, wire::GatherRank request,
                                                   std::chrono::milliseconds timeout);
  control::Task<Result<gang::RankGroups>> ask_groups(std::string node, gang::AskGroups request,
                                                     std::chrono::milliseconds timeout);
  control::Task<Result<wire::ImageFacts>> read_image(std::string node, wire::ReadImage request,
                                                     std::chrono::milliseconds timeout);

  control::Task<Result<wire::ListensForCheck>> listen_for_check(std::string node,
                                                                wire::ListenForCheck request,
                                                                std::chrono::milliseconds timeout);
  control::Task<Result<wire::NodeReached>> reach_node(std::string node, wire::ReachNode request,
                                                      std::chrono::milliseconds timeout);

  // Returns the needs of the move. nullopt means that the move would begin and the node does not report its
  // needs. Either the request did not ask for the needs, or the agent is too old to report them.
  control::Task<Result<std::optional<wire::MoveNeeds>>> check_move(std::string node, wire::CheckMove request,
                                                                   std::chrono::milliseconds timeout);
  control::Task<Result<void>> check_target(std::string node, wire::CheckTarget request,
                                           std::chrono::milliseconds timeout);

  control::Task<Result<wire::KeyMade>> ask_for_key(std::string node);

  // Handles the loss of the node's connection: pending requests to the node fail with `reason`.
  void on_disconnected(const std::string& node, const Error& reason);

 private:
  using Answer =
      std::variant<wire::Reply, wire::LogData, wire::ProcessFacts, wire::CheckpointStoreGrant,
                   wire::ImageFacts, wire::JobFacts, wire::HandoverFacts, wire::ListensForCheck,
                   wire::NodeReached, wire::KeyMade, wire::RankGathered, gang::RankGroups, wire::MoveNeeds>;
  struct Pending {
    Pending(std::string node_name, const control::asio::any_io_executor& executor)
        : node(std::move(node_name)), wake(executor) {}
    std::string node;
    control::asio::steady_timer wake;
    std::optional<Result<Answer>> answer;
  };

  using PendingAnswers = std::map<std::uint64_t, std::shared_ptr<Pending>>;
  // A pending request. Its answer is expected for as long as this object exists. It shares the table of
  // answers, because a coroutine that is never resumed may outlive NodeCalls.
  class Expecting {
   public:
    Expecting(std::shared_ptr<PendingAnswers> answers, std::uint64_t id, std::shared_ptr<Pending> pending)
        : answers_(std::move(answers)), id_(id) {
      answers_->emplace(id, std::move(pending));
    }
    ~Expecting() { answers_->erase(id_); }
    Expecting(const Expecting&) = delete;
    Expecting& operator=(const Expecting&) = delete;

   private:
    std::shared_ptr<PendingAnswers> answers_;
    std::uint64_t id_;
  };

  [[nodiscard]] bool has_room(const std::string& node) const;
  template <class M>
  bool send_now(const std::string& node, const M& message) {
    const Node* entry = nodes_.find(node);
    return entry != nullptr && entry->connected() && entry->connection->send(message).has_value();
  }

  // Sends a request whose answer is a `Wanted`, or a Reply with the reason of a refusal.
  template <class Wanted, class M>
  control::Task<Result<Wanted>> ask(std::string node, M request, std::chrono::milliseconds timeout) {
    request.request_id = next_request_++;
    auto answer = co_await exchange(node, request, request.request_id, timeout);
    if (!answer) co_return answer.error();
    if (const auto* reply = std::get_if<wire::Reply>(&*answer); reply != nullptr && !reply->ok)
      co_return reply->to_error();
    auto* wanted = std::get_if<Wanted>(&*answer);
    if (wanted == nullptr)
      co_return Error(ErrorCode::kProtocol,
                      "Node " + node + " sent an answer that does not match the request");
    co_return std::move(*wanted);
  }

  template <class M>
  control::Task<Result<Answer>> exchange(std::string node, M request, std::uint64_t id,
                                         std::chrono::milliseconds timeout) {
    const Node* entry = nodes_.find(node);
    if (entry == nullptr || !entry->connected())
      co_return Error(ErrorCode::kUnavailable, "Node " + node + " is not connected");
    auto pending = std::make_shared<Pending>(node, executor_);
    const Expecting expecting(pending_, id, pending);  // this also removes the request if the caller is
                                                       // cancelled
    if (auto sent = entry->connection->send(request); !sent) co_return sent.error();
    pending->wake.expires_after(timeout);
    while (!pending->answer) {
      const auto [code] = co_await pending->wake.async_wait(control::kTuple);
      if (!code && !pending->answer)
        pending->answer = Error(ErrorCode::kTimedOut, "Node " + node + " did not answer in time");
    }
    co_return std::move(*pending->answer);
  }

  template <class M>
  void subscribe_answers(NodeFrames& frames, wire::FrameType type) {
    frames.subscribe<M>(type, [this](const Node& node, const M& message) {
      finish(message.request_id, node.row.name, message);
    });
  }
  void finish(std::uint64_t request, const std::string& node, Answer answer);

  const NodeTable& nodes_;
  StoreSync& sync_;
  control::asio::any_io_executor executor_;
  std::shared_ptr<PendingAnswers> pending_ = std::make_shared<PendingAnswers>();
  // Request ids start at the current time. So they differ from those of an earlier coordinator, whose orders
  // a node may still answer.
  std::uint64_t next_request_ = static_cast<std::uint64_t>(now_ns());
};

}  // namespace ckpt::coordinator
