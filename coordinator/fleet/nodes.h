// SPDX-License-Identifier: Apache-2.0
// The agents: which nodes there are, what each has, and the connection to it with its requests and answers.
//
// Threads: one io_context on one thread. Ownership: a node's connection belongs to its entry; a newer
// connection of the same node replaces the older (the agent was restarted). Errors: calls return kUnavailable
// when the node is not connected or goes away meanwhile. They return kTimedOut when it does not answer (then
// the effect is unknown), else the agent's answer. Messages to a node leave once the store is durable up to
// then. A coordinator that lost a record with its power could order the same elsewhere. Messages of a switch
// leave at once: the journal decides them. So do questions.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/state/store_sync.h"
#include "libckpt/net/control/connection.h"
#include "libckpt/protocol/wire/control_messages.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {

// What an instance holds, as of the look at the driver that said how much is free.
struct ShownMemory {
  ShownMemory() = default;
  JobId job = 0;
  Incarnation incarnation = 0;
  std::uint32_t gpu = 0;
  std::uint64_t bytes = 0;
};

struct Node {
  NodeRow row;
  std::vector<wire::GpuInfo> gpus;           // as last reported
  std::vector<wire::JobInstance> instances;  // as last reported
  bool moves_processes = false;  // as last reported: host processes can be dumped and restored there
  std::string process_reason = "it has not said so";
  std::string driver_version;
  std::string rack;
  std::vector<std::string> labels;
  std::map<std::uint32_t, MemoryHistory>
      gpu_memory;                  // in use, by GPU, as far as reported since the coordinator started
  std::vector<ShownMemory> shown;  // free_bytes of `gpus` is without this
  // As its hello said (node_messages.h): for a coordinator that has forgotten something.
  std::vector<wire::OpenSwitch> switches;
  MigrationId newest_migration = 0;
  JobId newest_job = 0;
  bool describes = false;
  std::shared_ptr<control::Connection> connection;
  void keep(const wire::NodeInventory& inventory, std::int64_t now_ms);
  [[nodiscard]] bool connected() const { return connection != nullptr && connection->is_open(); }
  [[nodiscard]] const wire::JobInstance* find(JobId job, Incarnation incarnation) const;
  [[nodiscard]] std::uint64_t shown_bytes(JobId job, Incarnation incarnation) const;
  [[nodiscard]] std::uint64_t shown_bytes(std::uint32_t gpu) const;  // of all instances on it
};

// Asked of each node that dials.
class NodeGate {
 public:
  virtual ~NodeGate() = default;
  // Nothing: it is let in; else it is told that, and its connection ends.
  virtual std::optional<std::vector<wire::StopJob>> refusal(const std::string& node,
                                                            const wire::NodeInventory& has) = 0;
};

class NodeTable {
 public:
  // What others want to know; called on the io thread.
  struct Listener {
    std::function<void(const Node&)> on_ready;      // registered, inventory known
    std::function<void(const Node&)> on_lost;       // its connection ended
    std::function<void(const Node&)> on_inventory;  // the whole list of instances was replaced
    std::function<void(const Node&, const wire::JobInstance&)> on_change;  // one instance changed
    std::function<void(const Node&, const wire::SwitchMessage&)> on_switch;
    std::function<void(const Node&, const wire::MigrationProgress&)> on_progress;
    std::function<void(const Node&, const wire::SourceReport&)> on_source_report;
    std::function<void(const Node&, const wire::TargetReport&)> on_target_report;
  };

  NodeTable(Store& store, StoreSync& sync, control::asio::any_io_executor executor, wire::Welcome welcome,
            NodeGate& gate, Listener listener);

  // Frames that a part of the coordinator of its own takes (health, images). Set before agents may connect;
  // an error ends the node's connection, so it is for what no agent sends.
  using FrameHandler = std::function<Result<void>(const Node&, std::span<const std::byte>)>;
  void take(wire::FrameType type, FrameHandler handler) { handlers_[type] = std::move(handler); }

  // Names of nodes seen in earlier lives.
  Result<void> load();
  // A connection that knew the token; its first frame must be AgentHello.
  void adopt(std::shared_ptr<control::Connection> connection, const wire::Hello& hello);
  void close_all();
  // It is not there any more: its connection ends, and nothing of it is kept.
  Result<void> remove(const std::string& name);

  [[nodiscard]] const Node* find(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, Node>& all() const { return nodes_; }
  [[nodiscard]] bool connected(const std::string& name) const;

  // Best effort: false if not connected.
  bool tell(const std::string& node, const wire::SwitchMessage& message) { return send(node, message); }
  // Not at all if the store does not become durable: then `not_told` is called, for who would not tell it
  // again.
  template <class M>
  void tell(const std::string& node, const M& message, std::function<void()> not_told = {}) {
    sync_.when_durable([this, node, message, not_told = std::move(not_told)](const Result<void>& stays) {
      if (stays.has_value())
        send(node, message);
      else if (not_told)
        not_told();
    });
  }

  // Sends a request and waits for its Reply.
  template <class M>
  control::Task<Result<void>> call(std::string node, M request, std::chrono::milliseconds timeout) {
    CKPT_CO_TRYV(co_await durable(sync_));
    request.request_id = next_request_++;
    auto answer = co_await exchange(node, request, request.request_id, timeout);
    if (!answer) co_return answer.assume_error();
    if (const auto* reply = std::get_if<wire::Reply>(&answer.assume_value()); reply != nullptr && !reply->ok)
      co_return reply->to_error();
    co_return ok();
  }
  control::Task<Result<wire::LogData>> read_log(std::string node, wire::ReadLog request);
  control::Task<Result<wire::ProcessFacts>> inspect(std::string node, wire::InspectProcess request);
  control::Task<Result<wire::JobFacts>> describe(std::string node, wire::DescribeJob request);
  control::Task<Result<wire::SwitchFacts>> describe(std::string node, wire::DescribeSwitch request);
  control::Task<Result<wire::VaultGrant>> grant_vault(std::string node, wire::GrantVault request,
                                                      std::chrono::milliseconds timeout);
  control::Task<Result<wire::ImageFacts>> read_image(std::string node, wire::ReadImage request,
                                                     std::chrono::milliseconds timeout);

 private:
  template <class M>
  bool send(const std::string& node, const M& message) {
    const Node* entry = find(node);
    return entry != nullptr && entry->connected() && entry->connection->send(message).has_value();
  }

  using Answer = std::variant<wire::Reply, wire::LogData, wire::ProcessFacts, wire::VaultGrant,
                              wire::ImageFacts, wire::JobFacts, wire::SwitchFacts>;
  struct Pending {
    Pending(std::string node_name, control::asio::any_io_executor executor)
        : node(std::move(node_name)), wake(std::move(executor)) {}
    std::string node;
    control::asio::steady_timer wake;
    std::optional<Result<Answer>> answer;
  };

  using PendingAnswers = std::map<std::uint64_t, std::shared_ptr<Pending>>;
  // The answer is expected for as long as this lives. A coroutine that nobody resumes any more may outlive
  // the table.
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

  // A request that is answered with a `Wanted`, or with a Reply that says why not.
  template <class Wanted, class M>
  control::Task<Result<Wanted>> ask(std::string node, M request, std::chrono::milliseconds timeout) {
    request.request_id = next_request_++;
    auto answer = co_await exchange(node, request, request.request_id, timeout);
    if (!answer) co_return answer.assume_error();
    if (const auto* reply = std::get_if<wire::Reply>(&answer.assume_value()); reply != nullptr && !reply->ok)
      co_return reply->to_error();
    auto* wanted = std::get_if<Wanted>(&answer.assume_value());
    if (wanted == nullptr)
      co_return Error(ErrorCode::kProtocol, "Node " + node + " answered with something else than was asked");
    co_return std::move(*wanted);
  }
  template <class M>
  Result<void> take_answer(const Node& node, std::span<const std::byte> body) {
    CKPT_TRY(message, wire::decode<M>(body));
    finish(message.request_id, node.row.name, std::move(message));
    return ok();
  }

  template <class M>
  control::Task<Result<Answer>> exchange(std::string node, M request, std::uint64_t id,
                                         std::chrono::milliseconds timeout) {
    const Node* entry = find(node);
    if (entry == nullptr || !entry->connected())
      co_return Error(ErrorCode::kUnavailable, "Node " + node + " is not connected");
    auto pending = std::make_shared<Pending>(node, executor_);
    const Expecting expecting(pending_, id, pending);  // also when who asked is cancelled meanwhile
    if (auto sent = entry->connection->send(request); !sent) co_return sent.assume_error();
    pending->wake.expires_after(timeout);
    while (!pending->answer) {
      const auto [code] = co_await pending->wake.async_wait(control::kTuple);
      if (!code && !pending->answer)
        pending->answer = Error(ErrorCode::kTimedOut, "Node " + node + " did not answer in time");
    }
    co_return std::move(*pending->answer);
  }

  Result<void> on_frame(const std::string& name, const control::Connection* connection,
                        const wire::FrameHeader& header, std::span<const std::byte> body);
  Result<void> on_node_frame(Node& node, const wire::FrameHeader& header, std::span<const std::byte> body);
  Result<void> on_migration_frame(Node& node, const wire::FrameHeader& header,
                                  std::span<const std::byte> body);
  Result<void> welcome(const std::string& name, const wire::AgentHello& hello);
  void refuse(const std::string& name, const std::shared_ptr<control::Connection>& connection,
              const std::vector<wire::StopJob>& orders);
  Result<void> take_inventory(Node& node, const wire::NodeInventory& inventory);
  void take_change(Node& node, const wire::JobInstance& instance);
  void on_closed(const std::string& name, const control::Connection* connection, const Error& reason);
  void detach(Node& node, const Error& reason);
  void finish(std::uint64_t request, const std::string& node, Answer answer);

  Store& store_;
  StoreSync& sync_;
  control::asio::any_io_executor executor_;
  wire::Welcome welcome_;
  NodeGate& gate_;
  Listener listener_;
  std::map<wire::FrameType, FrameHandler> handlers_;
  std::map<std::string, Node> nodes_;
  std::map<const control::Connection*, std::shared_ptr<control::Connection>> unregistered_;
  // Of nodes that are refused, until what they were told has left.
  std::map<const control::Connection*, std::shared_ptr<control::asio::steady_timer>> refused_;
  std::shared_ptr<PendingAnswers> pending_ = std::make_shared<PendingAnswers>();
  std::uint64_t next_request_ = 1;
};

}  // namespace ckpt::coordinator
