// SPDX-License-Identifier: Apache-2.0
// A keeper that a test plays.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "libckpt/inprocess/local/socket.h"

namespace ckpt::agent {

// A keeper on a thread of its own. It answers Attach with `status`, then sends the messages that the test
// orders.
class FakeKeeper {
 public:
  // Starts the keeper. If `silent` is true, the keeper listens and does nothing until answer_now().
  FakeKeeper(
      const std::string& folder, local::Phase phase, std::function<void()> on_kill = [] {},
      bool silent = false)
      : phase_(phase), on_kill_(std::move(on_kill)) {
    if (!silent) go_on_.set_value();
    auto listener = local::Listener::create(folder + "/keeper.sock");
    EXPECT_TRUE(listener);
    listener_.emplace(*std::move(listener));
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeKeeper() { thread_.join(); }
  void answer_now() { go_on_.set_value(); }
  // The time of the rank's resume, before an agent attaches, and the incarnation it resumed as.
  std::atomic<Nanos> resumed_ns = 0;
  std::atomic<std::uint64_t> resumed_as = 0;
  std::atomic<std::uint32_t> session_pid = 0;
  std::atomic<std::uint64_t> state_bytes = 12345;
  // The wait status with which the rank exits when the keeper is ordered to end the rank.
  std::atomic<std::int32_t> wait_status = 3 << 8;
  // Runs before the answer to each Describe, on the keeper's thread. Set it before an agent attaches.
  std::function<void()> on_describe = [] {};

 private:
  void serve() {
    go_on_.get_future().wait();
    std::optional<local::Socket> agent;
    while (!agent) {
      pollfd waiting{listener_->fd(), POLLIN, 0};
      ::poll(&waiting, 1, -1);
      auto accepted = listener_->accept();
      if (!accepted) return;
      agent = *std::move(accepted);
    }
    EXPECT_TRUE(agent->set_blocking(true));
    for (;;) {
      auto received = agent->receive();
      if (!received || received->transfer != local::Transfer::kDone) return;
      answer(*agent, received->message);
      if (std::holds_alternative<local::Shutdown>(received->message.body)) return;
    }
  }
  void answer(local::Socket& agent, const local::Message& asked) {
    local::Message out;
    out.request = asked.request;
    if (std::holds_alternative<local::Attach>(asked.body)) {
      local::Status status;
      status.phase = phase_;
      status.rank_pid = 4711;
      status.resumed_ns = resumed_ns;
      status.incarnation = resumed_as;
      status.session_pid = session_pid;
      out.body = status;
    } else if (std::holds_alternative<local::Describe>(asked.body)) {
      on_describe();
      local::DescribeEnd end;
      end.summary.state_bytes = state_bytes;
      end.summary.movable = 1;
      out.body = end;
    } else if (std::holds_alternative<local::Kill>(asked.body) ||
               std::holds_alternative<local::Stop>(asked.body)) {
      on_kill_();
      out.body = local::Done{};
      EXPECT_TRUE(agent.send(out));
      out.request = 0;
      local::RankExited exited;
      exited.wait_status = wait_status;
      out.body = exited;
    } else {
      out.body = local::Done{};
    }
    EXPECT_TRUE(agent.send(out));
  }

  local::Phase phase_;
  std::function<void()> on_kill_;
  std::promise<void> go_on_;
  std::optional<local::Listener> listener_;
  std::thread thread_;
};

}  // namespace ckpt::agent
