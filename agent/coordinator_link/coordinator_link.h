// SPDX-License-Identifier: Apache-2.0
// The agent's connection to its coordinator. It reconnects as long as the agent runs, and turns commands into
// calls. It reports all facts about the node at each new connection and at every change. A report that was
// not received is sent again from the current state (inventory, records), never from a queue.
// Threads: the event loop. Ownership: owns the dialer. Errors: a failed command is answered with Reply.
// Malformed frames close the connection.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "agent/migration/migrations.h"
#include "agent/settings/config.h"
#include "libckpt/net/control/dialer.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::agent {

// The interface through which the coordinator's requests reach the agent.
class AgentCommands {
 public:
  virtual ~AgentCommands() = default;
  [[nodiscard]] virtual wire::NodeInventory inventory() const = 0;
  // Fills in the hello's fields other than the inventory.
  virtual void introduce(wire::AgentHello& hello) const = 0;
  virtual Task<Result<void>> start_job(wire::JobSpec spec) = 0;
  virtual Task<Result<void>> stop_job(wire::StopJob stop) = 0;
  virtual Task<Result<void>> forget_job(wire::ForgetJob forget) = 0;
  virtual Task<Result<wire::LogData>> read_job_log(wire::ReadLog request) = 0;
  virtual Task<Result<wire::ProcessFacts>> inspect(wire::InspectProcess request) = 0;
  virtual Result<void> set_limits(const wire::SetLimits& limits) = 0;
  virtual void welcome(const wire::Welcome& welcome) = 0;
  virtual void commit_message(wire::CommitMessage message) = 0;
};

class CoordinatorLink : public CoordinatorPort {
 public:
  // Takes the parts of the connection. If an identity is given, the coordinator must present its certificate,
  // unless the coordinator is on this machine.
  CoordinatorLink(asio::any_io_executor executor, const Config& config, AgentCommands& commands,
                  std::shared_ptr<tls::Identity> identity, std::shared_ptr<const tls::DeniedSerials> denied);
  ~CoordinatorLink() override;

  void start();
  [[nodiscard]] bool connected() const { return dialer_ && dialer_->connected(); }
  // Registers a handler for frames that a different part of the agent processes (health, images). Call this
  // before start(). An error of the handler closes the connection.
  using FrameHandler = std::function<Result<void>(std::span<const std::byte>)>;
  void subscribe(wire::FrameType type, FrameHandler handler) { handlers_[type] = std::move(handler); }
  // Registers a function that repeats messages. The function is called after the agent's hello at every new
  // connection. Call this before start().
  void at_each_connection(std::function<void()> report_again) {
    at_connection_.push_back(std::move(report_again));
  }
  // Sends a message without a guarantee that it arrives. Returns false if the coordinator is not connected.
  template <class M>
  bool send(const M& message) {
    return transmit(message);
  }
  // Answers a request that a handler of subscribe() received.
  void reply(std::uint64_t request, const Result<void>& outcome);

  void send_inventory();
  void send_change(const wire::JobInstance& instance);

  bool send(const wire::CommitMessage& message) override { return transmit(message); }
  bool send(const wire::MigrationProgress& progress) override { return transmit(progress); }
  bool send(const wire::SourceReport& report) override { return transmit(report); }
  bool send(const wire::TargetReport& report) override { return transmit(report); }

 private:
  template <class M>
  bool transmit(const M& message) {
    return connected() && dialer_->send(message).has_value();
  }
  Result<void> on_frame(const wire::FrameHeader& header, std::span<const std::byte> body);
  Task<> answer(std::uint64_t request, Task<Result<void>> work);
  Task<> answer_log(wire::ReadLog request);
  Task<> answer_facts(wire::InspectProcess request);

  asio::any_io_executor executor_;
  const Config& config_;
  AgentCommands& commands_;
  std::shared_ptr<tls::Identity> identity_;
  std::shared_ptr<const tls::DeniedSerials> denied_;
  std::shared_ptr<control::Dialer> dialer_;
  std::map<wire::FrameType, FrameHandler> handlers_;
  std::vector<std::function<void()>> at_connection_;
};

}  // namespace ckpt::agent
