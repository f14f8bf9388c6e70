// SPDX-License-Identifier: Apache-2.0
// The transparent mode between two GPUs of this node (hot card swap), with the same process, keeper and
// folder. From the release of the memory until the migration is closed, the keeper holds two sets of
// descriptors. One set is the source's, and the target's mover created the other. Therefore either side can
// continue even if this agent exits. Threads, ownership, errors: see mode.h.
#pragma once

#include <map>

#include "agent/migration/modes/mode.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/mover_values.h"

namespace ckpt::agent {

// Returns the work of a swap. `imports` means that the rank imports memory, which costs no time (remap.h).
[[nodiscard]] PauseWork swap_work(std::uint64_t region_bytes, bool imports);

class SwapSource final : public SourceMode {
 public:
  explicit SwapSource(MigrationContext& context, JobOperation operation)
      : context_(context), operation_(std::move(operation)) {}
  [[nodiscard]] bool sends_host_state() const override { return false; }
  [[nodiscard]] PauseWork pause_work(const Job& job, const local::StateSummary& summary) const override;
  Task<Result<void>> check(std::shared_ptr<Job> job) override;
  Task<Result<HostState>> save(std::shared_ptr<Job> job, PausedState paused,
                               wire::SourceReport& report) override;
  Task<Result<void>> go_back(std::shared_ptr<Job> job) override;
  Task<> leave(std::shared_ptr<Job> job) override;

 private:
  MigrationContext& context_;
  const JobOperation operation_;
};

class SwapTarget final : public TargetMode {
 public:
  SwapTarget(MigrationContext& context, JobOperation operation)
      : context_(context), operation_(std::move(operation)) {}
  std::shared_ptr<Job> find() override;
  Task<Result<std::shared_ptr<Job>>> start() override;
  Task<Result<void>> ready(std::shared_ptr<Job> job) override;
  [[nodiscard]] bool has_memory() const override { return false; }
  Task<Result<void>> import_memory(std::shared_ptr<Job> job, std::vector<mover::RegionInfo> regions,
                                   std::vector<UniqueFd> descriptors) override;
  Task<Result<void>> drop_memory(std::shared_ptr<Job> job, std::vector<std::uint64_t> regions) override;
  Result<void> store_host_state(std::shared_ptr<Job> job, HostState state) override;
  Task<Result<void>> run(std::shared_ptr<Job> job, RunOrder order, wire::TargetReport* report) override;
  [[nodiscard]] PauseWork pause_work(const Job& job) const override;
  Task<> end(std::shared_ptr<Job> job) override;
  Task<> free(std::shared_ptr<Job> job) override;

 private:
  Task<Result<void>> resume(std::shared_ptr<Job> job, RunOrder order, wire::TargetReport* report);

  MigrationContext& context_;
  const JobOperation operation_;
  std::map<std::uint64_t, std::uint64_t> generations_;  // generations of the regions that the keeper
                                                        // received, by region
};

}  // namespace ckpt::agent
