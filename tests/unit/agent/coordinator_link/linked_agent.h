// SPDX-License-Identifier: Apache-2.0
// The agent's connection to a coordinator that the test plays, and the commands behind it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/coordinator_link/coordinator_link.h"
#include "libckpt/base/fd.h"
#include "tests/unit/agent/coordinator_link/fake_coordinator.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent {

// Commands that store their orders, and return the answers that the test sets.
class FakeCommands : public AgentCommands {
 public:
  explicit FakeCommands(asio::any_io_executor executor) : executor_(std::move(executor)) {}
  [[nodiscard]] wire::NodeInventory inventory() const override {
    wire::NodeInventory inventory = now;
    if (certificate_end) inventory.certificate_ends_s = certificate_end();
    return inventory;
  }
  void introduce(wire::AgentHello& hello) const override { hello.newest_job = newest_job; }
  Task<Result<void>> start_job(wire::JobSpec spec) override {
    started.push_back(spec.job);
    if (holds_starts) {
      AsyncEvent& go_on = held_.emplace_back(executor_);
      co_await go_on.wait(std::chrono::steady_clock::time_point::max());
    }
    co_return outcome;
  }
  Task<Result<void>> stop_job(wire::StopJob stop) override {
    stopped.push_back(stop.job);
    co_return outcome;
  }
  Task<Result<void>> forget_job(wire::ForgetJob forget) override {
    forgotten.push_back(forget.job);
    co_return outcome;
  }
  Task<Result<wire::LogData>> read_job_log(wire::ReadLog request) override {
    if (!outcome) co_return outcome.error();
    wire::LogData data = log;
    data.request_id = request.request_id;
    co_return data;
  }
  Task<Result<wire::ProcessFacts>> inspect(wire::InspectProcess request) override {
    if (!outcome) co_return outcome.error();
    wire::ProcessFacts answer = facts;
    answer.request_id = request.request_id;
    co_return answer;
  }
  Result<void> set_limits(const wire::SetLimits& limits) override {
    limited.push_back(limits.migration);
    return outcome;
  }
  void welcome(const wire::Welcome& welcome) override { peer_token = welcome.peer_token; }
  void commit_message(wire::CommitMessage message) override { handovers.push_back(std::move(message)); }

  void go_on_with_starts() {
    for (AsyncEvent& held : held_) held.notify();
  }
  [[nodiscard]] std::size_t orders() const {
    return started.size() + stopped.size() + forgotten.size() + limited.size() + handovers.size();
  }

  wire::NodeInventory now;
  std::function<std::int64_t()> certificate_end;
  wire::JobId newest_job = 0;
  Result<void> outcome = ok();
  bool holds_starts = false;  // whether starts wait until go_on_with_starts()
  wire::LogData log;
  wire::ProcessFacts facts;
  std::vector<wire::JobId> started, stopped, forgotten;
  std::vector<wire::MigrationId> limited;
  std::vector<wire::CommitMessage> handovers;
  std::string peer_token;

 private:
  asio::any_io_executor executor_;
  std::list<AsyncEvent> held_;
};

class LinkedAgent : public ::testing::Test {
 protected:
  LinkedAgent() {
    config_.node = commands_.now.node = "node-a";
    config_.coordinator = address_of("first");
    config_.token_file = folder_ / "token";
    write("token", "secret\n");
    link_.emplace(io_.get_executor(), config_, commands_, nullptr, nullptr);
  }
  [[nodiscard]] std::string address_of(const std::string& name) const {
    return "unix:" + (folder_ / (name + ".sock"));
  }
  void write(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(write_file_durably(folder_ / name, text, 0600));
  }
  void listen() { coordinator_.emplace(io_, config_.coordinator, "secret"); }
  // Opens the connection, and receives the agent's hello.
  wire::AgentHello connect() {
    listen();
    link_->start();
    return take_hello(1);
  }
  wire::AgentHello take_hello(int connection) {
    coordinator_->await_greetings(connection);
    return coordinator_->receive<wire::AgentHello>("the agent's hello");
  }
  // Sends an order that is carried out at once. Its answer proves that the effects of earlier orders have
  // happened.
  void expect_answer_to_fence(std::uint64_t request) {
    wire::SetLimits fence;
    fence.request_id = request;
    coordinator_->send(fence);
    EXPECT_EQ(coordinator_->receive<wire::Reply>("the answer to SetLimits").request_id, request);
  }

  asio::io_context io_;
  TemporaryFolder folder_;
  Config config_;
  FakeCommands commands_{io_.get_executor()};
  std::optional<FakeCoordinator> coordinator_;
  std::optional<CoordinatorLink> link_;
};

}  // namespace ckpt::agent
