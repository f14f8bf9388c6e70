// SPDX-License-Identifier: Apache-2.0
// The ports of a migration's context, played by a test, and a node whose jobs have keepers of the test.
// Threads: the loop's. Ownership: the fixture's. Errors: those that the test sets.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/migration/modes/migration_context.h"
#include "agent/migration/ports/session_port.h"
#include "tests/unit/agent/jobs/node_of_jobs.h"

namespace ckpt::agent {

// A port that provides the GPUs that have a mover in the test.
class FakeGpus : public GpuPort {
 public:
  [[nodiscard]] Result<local::GpuIdentity> identity_of(std::uint32_t gpu) const override {
    if (!movers.contains(gpu)) return none();
    return local::GpuIdentity();
  }
  [[nodiscard]] Result<std::string> model_of(std::uint32_t gpu) const override {
    if (!movers.contains(gpu)) return none();
    return std::string("a model");
  }
  [[nodiscard]] Result<std::shared_ptr<MoverProcess>> mover_of(std::uint32_t gpu) override {
    const auto found = movers.find(gpu);
    if (found == movers.end()) return none();
    return found->second;
  }
  [[nodiscard]] std::uint64_t device_bytes_of(pid_t /*pid*/) const override { return 0; }

  std::map<std::uint32_t, std::shared_ptr<MoverProcess>> movers;

 private:
  static Error none() { return {ErrorCode::kNotFound, "There is no such GPU"}; }
};

// A port that releases each job once the test permits it.
class FakeHolder : public HolderPort {
 public:
  explicit FakeHolder(const asio::any_io_executor& executor) : go_on_(executor) {}
  Task<> acquire_exclusive(wire::JobId job) override {
    asked.push_back(job);
    while (holds) co_await go_on_.wait(std::chrono::steady_clock::time_point::max());
  }
  void release() {
    holds = false;
    go_on_.notify();
  }
  bool holds = false;
  std::vector<wire::JobId> asked;

 private:
  AsyncEvent go_on_;
};

class FakeReports : public CoordinatorPort {
 public:
  bool send(const wire::CommitMessage& /*message*/) override { return true; }
  bool send(const wire::MigrationProgress& progress) override {
    progresses.push_back(progress);
    return true;
  }
  bool send(const wire::SourceReport& /*report*/) override { return true; }
  bool send(const wire::TargetReport& /*report*/) override { return true; }
  std::vector<wire::MigrationProgress> progresses;
};

// A port that stores the events of sessions in their order.
class FakeSessionPort : public SessionPort {
 public:
  void on_event(migration::HandoverKey /*key*/, migration::SourceEvent event) override {
    of_source.push_back(std::move(event));
  }
  void on_event(migration::HandoverKey /*key*/, migration::TargetEvent event) override {
    of_target.push_back(std::move(event));
  }
  std::vector<migration::SourceEvent> of_source;
  std::vector<migration::TargetEvent> of_target;
};

// Returns the number of events of type Event.
template <class Event, class Events>
[[nodiscard]] int count_of(const Events& events) {
  int count = 0;
  for (const auto& event : events) count += std::holds_alternative<Event>(event) ? 1 : 0;
  return count;
}

// A context whose table contains the jobs that the test has written into the node's folder.
template <class Base>
class WithContext : public Base {
 protected:
  WithContext() {
    contexts_ = ContextHelper::create(this->io_.get_executor(), {});
    remap_.emplace(this->io_.get_executor(), this->config_, *contexts_, "/nonexistent/context");
  }
  ~WithContext() override { disk_.join(); }
  MigrationContext context(JobTable& jobs) {
    return {
        this->config_, this->io_.get_executor(), disk_, jobs, *contexts_, *remap_, pauses_, gpus_, holder_,
        reports_};
  }

  asio::thread_pool disk_{1};
  std::shared_ptr<ContextHelper> contexts_;
  std::optional<RemapChoice> remap_;
  std::shared_ptr<PauseMemory> pauses_ = std::make_shared<PauseMemory>(disk_, this->config_.home);
  FakeGpus gpus_;
  FakeHolder holder_{this->io_.get_executor()};
  FakeReports reports_;
  FakeSessionPort events_;
};

}  // namespace ckpt::agent
