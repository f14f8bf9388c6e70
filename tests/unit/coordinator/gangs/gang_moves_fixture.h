// SPDX-License-Identifier: Apache-2.0
// A job of two ranks on nodes that answer queries for groups, for tests of moves of ranks.
#pragma once

#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "libckpt/protocol/gang/gang_plan.h"
#include "tests/unit/coordinator/support/nodes_fixture.h"

namespace ckpt::coordinator::test {

class GangMovesTest : public NodesTest {
 protected:
  // Starts one rank on node-a and one on node-b. Two other nodes stay free.
  void start_ranks() {
    for (const char* name : {"node-a", "node-b", "node-c", "node-d"}) answer_groups(node(name));
    start();
    const auto begun = cluster_.post(
        "/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","name":"ranks","ranks":2,"nodes":["node-a","node-b"],
                        "env":{"MASTER_ADDR":"x","MASTER_PORT":"1"}})");
    ASSERT_EQ(begun.status, 201U) << begun.body;
  }
  // Makes the agent answer queries for groups. If `waits_for_` is not 0, it answers once that many nodes were
  // queried.
  void answer_groups(FakeAgent& agent) {
    agent.on_other = [this, &agent](const wire::FrameHeader& header, std::span<const std::byte> body) {
      if (header.type != wire::FrameType::kAskGroups) return;
      gang::RankGroups answer;
      answer.request_id = wire::decode<gang::AskGroups>(body).value().request_id;
      answer.knows_gang = true;
      const std::lock_guard lock(mutex_);
      unanswered_.emplace_back(&agent, answer);
      if (unanswered_.size() < waits_for_) return;
      for (const auto& [asked, groups] : std::exchange(unanswered_, {}))
        asked->post([to = asked, sent = groups] { to->send(sent); });
    };
  }

  // Makes the agents give the answers that they have kept, and all later answers at once.
  void answer_now() {
    const std::lock_guard lock(mutex_);
    waits_for_ = 0;
    for (const auto& [asked, groups] : std::exchange(unanswered_, {}))
      asked->post([to = asked, sent = groups] { to->send(sent); });
  }
  static json rank_of(const json& drain) {
    for (const json& entry : drain["jobs"])
      if (entry["name"] != "solo") return entry;
    return {};
  }

  std::size_t waits_for_ = 0;

 private:
  std::mutex mutex_;
  std::vector<std::pair<FakeAgent*, gang::RankGroups>> unanswered_;
};

}  // namespace ckpt::coordinator::test
