// SPDX-License-Identifier: Apache-2.0
// Tests `run --dry-run`, priorities, memory and `rebalance` against a coordinator that answers in the form of
// docs/api.md.
#include <gtest/gtest.h>

#include "tests/unit/tools/gpumigrate/run_command.h"

namespace ckpt::cli {
namespace {

TEST(PlacingCommands, DryRunOfRunCountsCausesAndShowsEveryGpuOnRequest) {
  FakeCoordinator coordinator([](const FakeRequest&) {
    return json(
        R"json({"dry_run":true,"name":null,"to":"node-a:1","gpu_memory_bytes":0,"possible":true,"reason":null,"candidates":[
      {"node":"node-a","gpu":1,"suitable":true,"score":0.5,"reasons":["1.00 GiB free of 1.00 GiB (+0.50)"]},
      {"node":"node-b","gpu":0,"suitable":false,"score":null,"cause":"in MIG mode","reasons":["MIG mode is on","node is not connected"]},
      {"node":"node-b","gpu":1,"suitable":false,"score":null,"cause":"in MIG mode","reasons":["MIG mode is on"]}]})json");
  });
  const Ended ended = run(coordinator.home(), {"run", "--dry-run", "--priority", "7", "--", "/bin/true"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(ended.out, "would start at node-a:1")) << ended.out;
  EXPECT_TRUE(has(ended.out, "chosen      node-a:1, score +0.50: 1.00 GiB free of 1.00 GiB (+0.50)\n"))
      << ended.out;
  EXPECT_TRUE(has(ended.out, "GPUs        1 suitable, 2 in MIG mode (-v shows each)\n")) << ended.out;
  EXPECT_FALSE(has(ended.out, "MIG mode is on")) << ended.out;
  ASSERT_EQ(coordinator.requests().size(), 1U);
  const Json asked = Json::parse(coordinator.requests().at(0).body);
  EXPECT_EQ(asked["dry_run"], true);
  EXPECT_EQ(asked["priority"], 7);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"run", "--dry-run", "-v", "--", "/bin/true"},
        {"run", "--dry-run", "-o", "wide", "--", "/bin/true"}}) {
    const Ended each = run(coordinator.home(), more);
    EXPECT_TRUE(has(each.out, "node-a:1  yes       +0.50")) << each.out;
    EXPECT_TRUE(has(each.out, "MIG mode is on; node is not connected")) << each.out;
  }
}

TEST(PlacingCommands, DryRunOfRunWithoutAGpuExitsWithFive) {
  FakeCoordinator coordinator([](const FakeRequest&) {
    return json(
        R"({"dry_run":true,"to":null,"possible":false,"reason":"No GPU can hold the job","candidates":[]})");
  });
  const Ended ended = run(coordinator.home(), {"run", "--dry-run", "--", "/bin/true"});
  EXPECT_EQ(ended.code, 5);
  EXPECT_TRUE(has(ended.out, "not start: No GPU can hold the job")) << ended.out;
}

TEST(PlacingCommands, DescribeShowsTheMemoryHistory) {
  FakeCoordinator coordinator([](const FakeRequest&) {
    return json(
        R"({"id":"j1","name":"train","priority":3,"memory":{"now_bytes":1073741824,"peak_bytes":3221225472,
      "peak_time":"2026-01-01T00:00:00.000Z","minutes_until":"2026-01-01T00:02:00.000Z","minutes":[3221225472,null,1073741824]}})");
  });
  const Ended ended = run(coordinator.home(), {"describe", "train", "-a"});
  EXPECT_TRUE(has(ended.out, "1 GiB now, 3 GiB peak at 2026-01-01 00:00:00Z")) << ended.out;
  EXPECT_TRUE(has(ended.out, "by minute   3 GiB - 1 GiB")) << ended.out;
  EXPECT_TRUE(has(ended.out, "priority 3")) << ended.out;
}

constexpr const char* kMoves =
    R"("moves":[{"job":"j1","name":"train","from":"node-a:0","to":"node-b:0","needed_bytes":1073741824,"state_bytes":1,
       "reason":"frees node-a:0","state":"STATE","migration":"m4","error":ERROR}],"freed":["node-a:0"],"free_before":0,"free_after":1,
       "exhaustive":true,"fixed":[{"job":"j2","name":"other","reason":"it is paused"}])";

std::string rebalance(const std::string& head, const std::string& state, const std::string& error = "null") {
  std::string text = "{" + head + "," + kMoves + "}";
  text.replace(text.find("STATE"), 5, state);
  text.replace(text.find("ERROR"), 5, error);
  return text;
}

TEST(PlacingCommands, RebalanceShowsThePlanAndChangesNothing) {
  FakeCoordinator coordinator(
      [](const FakeRequest&) { return json(rebalance(R"("dry_run":true)", "planned")); });
  const Ended ended = run(coordinator.home(), {"rebalance"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(has(ended.out, "1 move frees node-a:0 (0 GPUs without a job before, 1 after)")) << ended.out;
  EXPECT_TRUE(has(ended.out, "train  node-a:0  node-b:0  1 GiB  frees node-a:0")) << ended.out;
  EXPECT_TRUE(has(ended.out, "stays: other (it is paused)")) << ended.out;
  EXPECT_EQ(Json::parse(coordinator.requests().at(0).body), Json::parse(R"({"apply":false,"parallel":1})"));
}

TEST(PlacingCommands, RebalanceWaitsForTheEndOfARun) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (request.method == "POST")
      return json(rebalance(R"("state":"running","revision":1,"parallel":2)", "moving"), 202);
    return json(rebalance(R"("state":"failed","revision":3,"parallel":2)", "failed", "\"m4 failed: link\""));
  });
  const Ended ended = run(coordinator.home(), {"rebalance", "--apply", "--parallel", "2"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(has(ended.err, "moving  train node-a:0 -> node-b:0")) << ended.err;
  EXPECT_TRUE(has(ended.out, "rebalance failed:")) << ended.out;
  EXPECT_TRUE(has(ended.out, "failed (m4)\ntrain: m4 failed: link\n")) << ended.out;
  EXPECT_EQ(coordinator.requests().at(1).target, "/v1/rebalance/watch?since=1&timeout_ms=30000");
}

TEST(PlacingCommands, InvalidValuesAreRefusedWithoutARequest) {
  FakeCoordinator coordinator([](const FakeRequest&) { return json("{}"); });
  const std::vector<std::vector<std::string>> lines = {{"rebalance", "--parallel", "0"},
                                                       {"rebalance", "--apply", "--dry-run"},
                                                       {"rebalance", "--stop", "--apply"},
                                                       {"run", "--priority", "1001", "--", "x"},
                                                       {"run", "--priority", "high", "--", "x"}};
  for (const auto& line : lines) EXPECT_EQ(run(coordinator.home(), line).code, 64) << line.back();
  EXPECT_TRUE(coordinator.requests().empty());
}

}  // namespace
}  // namespace ckpt::cli
