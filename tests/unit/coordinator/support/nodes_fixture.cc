// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/coordinator/support/nodes_fixture.h"

#include <algorithm>

namespace ckpt::coordinator::test {

std::optional<Image> FakeImages::newest(JobId job) const {
  if (std::find(jobs.begin(), jobs.end(), job) == jobs.end()) return std::nullopt;
  Image image;
  image.job = job;
  image.version = 7;
  image.node = "vault";
  image.folder = "/shared/vault";
  return image;
}

control::Task<Result<Restored>> FakeImages::restore(JobId job, std::optional<Place> to, std::string reason) {
  const auto executor = co_await control::asio::this_coro::executor;
  const auto hold = std::make_shared<control::asio::steady_timer>(executor, std::chrono::hours(1));
  store(hold);
  note("restore", job, to, std::move(reason));
  if (restore_fails) co_return *restore_fails;
  if (held) co_await hold->async_wait(control::kTuple);
  Restored restored;
  restored.image = *newest(job);
  restored.place = to.value_or(Place("somewhere", 0));
  restored.lost_ms = 12'300;
  co_return restored;
}

control::Task<Result<void>> FakeImages::park(JobId job, bool snapshot, std::string reason) {
  note(snapshot ? "snapshot+park" : "park", job, std::nullopt, std::move(reason));
  co_return ok();
}

std::vector<FakeImages::Call> FakeImages::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void FakeImages::wait_for_calls(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return calls_.size() >= count; });
}

void FakeImages::release() {
  const std::lock_guard lock(mutex_);
  if (const auto hold = hold_.lock()) control::asio::post(hold->get_executor(), [hold] { hold->cancel(); });
}

void FakeImages::store(const std::shared_ptr<control::asio::steady_timer>& hold) {
  const std::lock_guard lock(mutex_);
  hold_ = hold;
}

void FakeImages::note(std::string what, JobId job, std::optional<Place> to, std::string reason) {
  const std::lock_guard lock(mutex_);
  Call& call = calls_.emplace_back();
  call.what = std::move(what);
  call.job = job;
  call.to = std::move(to);
  call.reason = std::move(reason);
  changed_.notify_all();
}

FakeAgent& NodesTest::node(const std::string& name) {
  if (cluster_.agent_token().empty()) cluster_.start();
  auto& agent = nodes_[name];
  if (!agent) agent = std::make_unique<FakeAgent>(name, cluster_.agent_address(), cluster_.agent_token());
  return *agent;
}

void NodesTest::start() {
  for (const auto& [name, agent] : nodes_) agent->start();
  ready_ += static_cast<unsigned>(nodes_.size());
  cluster_.wait_for_event("node-ready", ready_);
}

void NodesTest::restart() {
  cluster_.stop();
  cluster_.start();
  ready_ += static_cast<unsigned>(nodes_.size());
  cluster_.wait_for_event("node-ready", ready_);
}

void NodesTest::run_job(const std::string& name, const std::string& on) {
  const auto answer = cluster_.post(
      "/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","node":")" + on + R"(","name":")" + name + "\"}");
  ASSERT_EQ(answer.status, 201U) << answer.body;
}

NodesTest::json NodesTest::drain(const std::string& body) {
  const auto answer = cluster_.post("/v1/drains", body);
  EXPECT_EQ(answer.status, 202U) << answer.body;
  return answer.json();
}

NodesTest::json NodesTest::finished_drain(const std::string& id) {
  return wait_for_drain(id, [](const json& drain) { return !drain["open"].get<bool>(); });
}

NodesTest::json NodesTest::wait_for_drain(const std::string& id,
                                          const std::function<bool(const json&)>& done) {
  std::uint64_t since = 0;
  while (true) {
    const auto answer =
        cluster_.get("/v1/drains/" + id + "/watch?timeout_ms=30000&since=" + std::to_string(since));
    EXPECT_EQ(answer.status, 200U) << answer.body;
    json drain = answer.json();
    if (answer.status != 200 || done(drain)) return drain;
    if (!drain["open"].get<bool>()) {
      ADD_FAILURE() << "the drain ended before: " << drain;
      return drain;
    }
    since = drain["revision"].get<std::uint64_t>();
  }
}

NodesTest::json NodesTest::job_of(const json& drain, const std::string& name) {
  for (const json& entry : drain["jobs"])
    if (entry["name"] == name) return entry;
  return {};
}

wire::HealthFinding NodesTest::finding(std::uint64_t number, std::uint32_t xid, const std::string& reason) {
  wire::HealthFinding f;
  f.number = number;
  f.time_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                  std::chrono::system_clock::now().time_since_epoch())
                  .count();
  f.source = "nvml";
  f.xid = xid;
  f.cordon = true;
  f.reason = reason;
  return f;
}

void NodesTest::report(const std::string& from, const std::vector<wire::HealthFinding>& findings) {
  wire::HealthReport message;
  message.findings = findings;
  node(from).report_health(message);
}

NodesTest::json NodesTest::wait_for_evacuation(const std::string& job, const std::string& state) {
  std::uint64_t since = 0;
  while (true) {
    const json now = health();
    for (const json& e : now["evacuations"]) {
      if (e["job_name"] != job) continue;
      if (e["state"] == state) return e;
      break;
    }
    const json events = cluster_.get("/v1/events?follow_ms=30000&since=" + std::to_string(since)).json();
    if (events["events"].empty()) {
      ADD_FAILURE() << "no evacuation of " << job << " is " << state << ": " << health();
      return {};
    }
    since = events["next"].get<std::uint64_t>();
  }
}

}  // namespace ckpt::coordinator::test
