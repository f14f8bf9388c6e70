// SPDX-License-Identifier: Apache-2.0
// Nodes with GPUs and running jobs, as a coordinator sees them: agents that send their inventories once per
// period.
// Threads: the thread that made the object; each agent has its own. Ownership: the agents, which disconnect
// at the end of this object. Errors: kTimedOut for nodes that do not connect, kInternal for a job that does
// not start.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/scale/coordinator_process.h"
#include "tests/unit/coordinator/support/fake_agent.h"

namespace ckpt::scale {

struct NodesShape {
  unsigned nodes = 30;
  unsigned gpus = 4;
  unsigned jobs_per_gpu = 2;
  std::chrono::milliseconds period{1000};
};

class SimulatedNodes {
 public:
  SimulatedNodes(const CoordinatorProcess& coordinator, const NodesShape& shape);
  ~SimulatedNodes();
  SimulatedNodes(const SimulatedNodes&) = delete;
  SimulatedNodes& operator=(const SimulatedNodes&) = delete;

  // Connects all agents, starts their jobs, and makes them send inventories.
  Result<void> start();
  // Makes the agents send nothing more while they stay connected.
  void fall_silent();

  [[nodiscard]] static std::string name_of(unsigned node) { return "node-" + std::to_string(node); }
  [[nodiscard]] static std::string job_of(unsigned node, unsigned gpu, unsigned job);

 private:
  Result<void> wait_until_ready() const;
  Result<void> start_jobs() const;
  void speak();
  void send_reports(coordinator::test::FakeAgent& agent, unsigned turn) const;

  const CoordinatorProcess& coordinator_;
  NodesShape shape_;
  std::vector<std::unique_ptr<coordinator::test::FakeAgent>> agents_;
  std::mutex mutex_;
  std::condition_variable silence_;
  bool silent_ = false;
  std::thread speaker_;
};

}  // namespace ckpt::scale
