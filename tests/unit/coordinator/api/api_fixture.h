// SPDX-License-Identifier: Apache-2.0
// A coordinator with its API, and two nodes. Their agents speak the control messages and do nothing.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_agent.h"

namespace ckpt::coordinator::test {

using nlohmann::json;

class ApiTest : public ::testing::Test {
 protected:
  void SetUp() override { cluster_.start(); }
  std::unique_ptr<FakeAgent> agent(const std::string& node) {
    return std::make_unique<FakeAgent>(node, cluster_.agent_address(), cluster_.agent_token());
  }
  void two_nodes() {
    a_ = agent("node-a");
    b_ = agent("node-b");
  }
  void start_nodes() {
    a_->start();
    b_->start();
    cluster_.wait_for_event("node-ready", 2);
  }
  json run_job(const std::string& name = "train") {
    const auto answer = cluster_.post(
        "/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","node":"node-a","name":")" + name + "\"}");
    EXPECT_EQ(answer.status, 201U) << answer.body;
    return answer.json();
  }
  json finished(const std::string& migration) {
    std::uint64_t since = 0;
    while (true) {
      const auto answer =
          cluster_.get("/v1/migrations/" + migration + "/watch?since=" + std::to_string(since));
      if (answer.status != 200) return answer.body;
      const json m = answer.json();
      if (!m["open"].get<bool>()) return m;
      since = m["revision"].get<std::uint64_t>();
    }
  }
  static void expect_error(const HttpAnswer& answer, unsigned status, const std::string& code,
                           int exit_code) {
    EXPECT_EQ(answer.status, status) << answer.body;
    const json error = answer.json()["error"];
    EXPECT_EQ(error["code"], code) << answer.body;
    EXPECT_EQ(error["exit_code"], exit_code) << answer.body;
    EXPECT_FALSE(error["message"].get<std::string>().empty());
  }

  Cluster cluster_;
  std::unique_ptr<FakeAgent> a_;
  std::unique_ptr<FakeAgent> b_;
};

}  // namespace ckpt::coordinator::test
