// SPDX-License-Identifier: Apache-2.0
// The cooperative mode: the target's instance is a standby that waits in ckpt_ready with its tensors
// allocated; host state is what the program names. The host state that arrived is put into the instance's
// folder before COMMITTED can be written. So an agent that is restarted in between can still start the
// instance. The page cache is enough: the standby's memory does not survive its node either.
// Threads, ownership, errors: see mode.h.
#pragma once

#include <string>

#include "agent/migration/modes/mode.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/mover_values.h"

namespace ckpt::agent {

class CooperativeSource final : public SourceMode {
 public:
  explicit CooperativeSource(JobOperation operation) : operation_(std::move(operation)) {}
  [[nodiscard]] bool sends_host_state() const override { return true; }
  [[nodiscard]] PauseWork pause_work(const Job& job, const local::StateSummary& summary) const override;
  Task<Result<void>> check(std::shared_ptr<Job> job) override;
  Result<void> check_target(const EndpointPayload& target) override;
  Task<Result<HostState>> save(std::shared_ptr<Job> job, PausedState paused,
                               wire::SourceReport& report) override;
  Task<Result<void>> go_back(std::shared_ptr<Job> job) override;
  Task<> leave(std::shared_ptr<Job> job) override;

 private:
  const JobOperation operation_;
};

class CooperativeTarget final : public TargetMode {
 public:
  CooperativeTarget(MigrationContext& context, JobOperation operation)
      : context_(context), operation_(std::move(operation)) {}
  std::shared_ptr<Job> find() override;
  Task<Result<std::shared_ptr<Job>>> start() override;
  Task<Result<void>> ready(std::shared_ptr<Job> job) override;
  [[nodiscard]] bool has_memory() const override { return true; }
  Task<Result<void>> take_memory(std::shared_ptr<Job> job, std::vector<mover::RegionInfo> regions,
                                 std::vector<UniqueFd> descriptors) override;
  Result<void> keep(std::shared_ptr<Job> job, HostState state) override;
  Task<Result<void>> run(std::shared_ptr<Job> job, RunOrder order, wire::TargetReport* report) override;
  Task<Result<void>> enter_gate(std::shared_ptr<Job> job, wire::Incarnation k, std::uint64_t epoch) override;
  [[nodiscard]] PauseWork pause_work(const Job& job) const override;
  Task<> end(std::shared_ptr<Job> job) override;
  Task<> free(std::shared_ptr<Job> job) override;

 private:
  Task<Result<void>> resume_standby(std::shared_ptr<Job> job, RunOrder order, wire::TargetReport* report);

  MigrationContext& context_;
  const JobOperation operation_;
  UniqueFd host_state_;
};

// The host state's memory file as bytes of a file, and back. Used across an agent's restart.
Result<void> save_host_state(int memory_file, std::uint64_t bytes, const std::string& path);
Result<UniqueFd> load_host_state(const std::string& path);

}  // namespace ckpt::agent
