// SPDX-License-Identifier: Apache-2.0
// A coordinator with two agents, and a job on the first agent. The agents' checkpoint stores speak the
// messages and do nothing.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/images/images.h"
#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/node_messages.h"
#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_checkpoint_store.h"

namespace ckpt::coordinator::test {

using nlohmann::json;
using wire::JobPhase;

inline constexpr auto kAccept = R"({"accept_loss":true})";

class ImagesTest : public ::testing::Test {
 protected:
  struct TestNode {
    std::unique_ptr<FakeAgent> agent;
    std::unique_ptr<FakeCheckpointStore> checkpoint_store;
  };
  void SetUp() override {
    cluster_.start();
    a_ = node("node-a");
    b_ = node("node-b");
    a_.agent->start();
    b_.agent->start();
    cluster_.wait_for_event("node-ready", 2);
    const auto answer =
        cluster_.post("/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","node":"node-a","name":"train"})");
    ASSERT_EQ(answer.status, 201U) << answer.body;
  }
  void TearDown() override {
    for (TestNode* n : {&a_, &b_}) n->agent.reset();
  }
  TestNode node(const std::string& name, wire::NodeInventory* known = nullptr) {
    TestNode made;
    made.agent = std::make_unique<FakeAgent>(name, cluster_.agent_address(), cluster_.agent_token());
    if (known != nullptr) made.agent->inventory = *known;
    made.checkpoint_store = std::make_unique<FakeCheckpointStore>(*made.agent, name, shared_);
    return made;
  }
  // Disconnects the node; come_back() reconnects it with its state.
  void go_away(TestNode& gone) {
    gone.agent->stop();
    cluster_.wait_for_event("node-lost");
  }
  void come_back(TestNode& gone, const std::string& name) {
    wire::NodeInventory known = gone.agent->inventory;
    gone = node(name, &known);
    gone.agent->start();
  }
  void restart_coordinator() {
    cluster_.stop();
    cluster_.start();
  }

  json job() { return cluster_.get("/v1/jobs/train").json(); }
  // Orders `verb` and waits for the end of the operation.
  json order(const std::string& verb, const std::string& body = "{}") {
    const auto begun = cluster_.post("/v1/jobs/train/" + verb, body);
    EXPECT_EQ(begun.status, 202U) << begun.body;
    return begun.status == 202U ? finished(begun.json()) : begun.json();
  }
  json finished(json task) {
    wait_until([&] {
      if (task["open"].get<bool>()) task = cluster_.get("/v1/tasks/" + task["id"].get<std::string>()).json();
      return !task["open"].get<bool>();
    });
    return task;
  }
  void expect_refused(const HttpAnswer& answer, unsigned status, const std::string& part) {
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_NE(answer.body.find(part), std::string::npos) << answer.body;
  }
  // Returns the living instances, as the agents report them. The agents are queried on their threads.
  static std::vector<std::uint64_t> alive(TestNode& n) {
    std::promise<std::vector<std::uint64_t>> found;
    n.agent->post([&] {
      std::vector<std::uint64_t> list;
      for (const wire::JobInstance& instance : n.agent->inventory.jobs) {
        if (instance.phase != JobPhase::kExited && instance.phase != JobPhase::kMoved)
          list.push_back(instance.incarnation);
      }
      found.set_value(list);
    });
    return found.get_future().get();
  }
  // Returns the living instances of a stopped agent.
  static std::vector<std::uint64_t> alive_of(const TestNode& n) {
    std::vector<std::uint64_t> list;
    for (const wire::JobInstance& instance : n.agent->inventory.jobs) {
      if (instance.phase != JobPhase::kExited && instance.phase != JobPhase::kMoved)
        list.push_back(instance.incarnation);
    }
    return list;
  }
  // Returns the text of the last event of the kind.
  std::string text_of(const std::string& kind) {
    std::string text;
    const json answer = cluster_.get("/v1/events?since=0").json();
    for (const json& event : answer["events"])
      if (event["kind"] == kind) text = event["text"].get<std::string>();
    return text;
  }
  // Waits until `holds` is true. It is checked again at every answer of the coordinator.
  void wait_until(const std::function<bool()>& holds) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "job: " << job();
      ASSERT_EQ(cluster_.get("/v1/status").status, 200U);
      std::this_thread::yield();
    }
  }
  void wait_for_snapshots(TestNode& n, unsigned count) {
    wait_until([&] { return n.checkpoint_store->snapshots >= count; });
  }
  void wait_for_restores(TestNode& n, unsigned count) {
    wait_until([&] { return n.checkpoint_store->restores >= count; });
  }
  void wait_until_none(TestNode& n) {
    wait_until([&] { return alive(n).empty(); });
  }
  std::string ask_newest() {
    std::string node;
    cluster_.on_images([&](Images& images, const auto&) {
      const auto image = images.newest(1);
      if (image) node = image->node;
    });
    return node;
  }
  template <class T>
  Result<T> ask_images(const std::function<control::Task<Result<T>>(Images&)>& what) {
    std::promise<Result<T>> answer;
    cluster_.on_images([&](Images& images, control::asio::any_io_executor executor) {
      control::spawn(executor, "a test", store<T>(what(images), &answer));
    });
    return answer.get_future().get();
  }
  template <class T>
  static control::Task<> store(control::Task<Result<T>> task, std::promise<Result<T>>* answer) {
    answer->set_value(co_await std::move(task));
  }

  using Incarnations = std::vector<std::uint64_t>;
  Cluster cluster_;
  std::shared_ptr<SharedFolders> shared_ = std::make_shared<SharedFolders>();
  TestNode a_;
  TestNode b_;
};

}  // namespace ckpt::coordinator::test
