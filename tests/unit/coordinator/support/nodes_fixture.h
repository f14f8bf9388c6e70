// SPDX-License-Identifier: Apache-2.0
// A coordinator with fake nodes and fake images, for tests of drains and evacuations.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "coordinator/images/images.h"
#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_agent.h"

namespace ckpt::coordinator::test {

// Fake images: there is an image of every job in `jobs`, and nothing is started.
class FakeImages : public Images {
 public:
  struct Call {
    std::string what;  // restore, park or snapshot+park
    JobId job = 0;
    std::optional<Place> to;
    std::string reason;
  };
  [[nodiscard]] std::optional<Image> newest(JobId job) const override;
  control::Task<Result<Restored>> restore(JobId job, std::optional<Place> to, std::string reason) override;
  control::Task<Result<void>> park(JobId job, bool snapshot, std::string reason) override;
  [[nodiscard]] std::vector<Call> calls() const;
  void wait_for_calls(std::size_t count);
  // Lets a held restore continue.
  void release();

  // Set these fields before the cluster starts.
  std::vector<JobId> jobs;
  bool held = false;
  std::optional<Error> restore_fails;

 private:
  void store(const std::shared_ptr<control::asio::steady_timer>& hold);
  void note(std::string what, JobId job, std::optional<Place> to, std::string reason);
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_;
  // The timer that a held coroutine waits on and owns. It ends with its coordinator.
  std::weak_ptr<control::asio::steady_timer> hold_;
};

class NodesTest : public ::testing::Test {
 protected:
  using json = nlohmann::json;

  FakeAgent& node(const std::string& name);
  // Starts the coordinator (unless it runs) and every named node.
  void start();
  // Ends the coordinator and starts another in its place. The nodes connect again.
  void restart();
  void run_job(const std::string& name, const std::string& on);
  json job(const std::string& name) { return cluster_.get("/v1/jobs/" + name).json(); }
  // Expects status 202 and returns the drain.
  json drain(const std::string& body);
  json finished_drain(const std::string& id);
  // Waits until `done` is true for the drain.
  json wait_for_drain(const std::string& id, const std::function<bool(const json&)>& done);
  static json job_of(const json& drain, const std::string& name);

  static wire::HealthFinding finding(std::uint64_t number, std::uint32_t xid, const std::string& reason);
  void report(const std::string& from, const std::vector<wire::HealthFinding>& findings);
  json health() { return cluster_.get("/v1/health").json(); }
  // Waits until the newest evacuation of the job is in that state.
  json wait_for_evacuation(const std::string& job, const std::string& state);

  Cluster cluster_;
  FakeImages images_;
  std::map<std::string, std::unique_ptr<FakeAgent>> nodes_;

 private:
  unsigned ready_ = 0;  // the number of expected node-ready events
};

}  // namespace ckpt::coordinator::test
