// SPDX-License-Identifier: Apache-2.0
// The cooperative mode. The target's instance is a standby that waits in ckpt_ready with its tensors
// allocated. The host state is the data that the program names. The arrived host state is written into the
// instance's folder before COMMITTED can be written. Therefore an agent that restarts in between can still
// start the instance. The page cache is sufficient, because the standby's memory does not survive its node
// either. Threads, ownership, errors: see mode.h.
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
  Task<Result<void>> import_memory(std::shared_ptr<Job> job, std::vector<mover::RegionInfo> regions,
                                   std::vector<UniqueFd> descriptors) override;
  Result<void> store_host_state(std::shared_ptr<Job> job, HostState state) override;
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

// Writes the host state's memory file to a file, or reads it back. An agent uses the file after its restart.
Result<void> save_host_state(int memory_file, std::uint64_t bytes, const std::string& path);
Result<UniqueFd> load_host_state(const std::string& path);

}  // namespace ckpt::agent
