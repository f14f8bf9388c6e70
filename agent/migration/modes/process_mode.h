// SPDX-License-Identifier: Apache-2.0
// The transparent mode between two nodes, in which the process itself moves. At the source the context is
// saved, then CRIU dumps the process into a folder in memory. The folder travels as the migration's host
// state. The process stays stopped until the protocol releases it. At the target, after COMMITTED, a keeper
// restores the process from the image, and the process continues as in a swap. Until the instance has its
// keeper, this agent holds the arrived memory. If the agent exits in between, the instance counts as dead.
// Then the source continues from its barrier, and the target has never run. Threads, ownership, errors: see
// mode.h.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "agent/host_process/criu.h"
#include "agent/host_process/file_list.h"
#include "agent/host_process/page_stream.h"
#include "agent/host_process/processes/process_tree.h"
#include "agent/host_process/processes/task_settings.h"
#include "agent/host_process/processes/time_limit.h"
#include "agent/host_process/sockets/bound_ports.h"
#include "agent/host_process/sockets/connections.h"
#include "agent/migration/modes/memory_rounds.h"
#include "agent/migration/modes/mode.h"
#include "agent/migration/modes/process_image.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/mover_values.h"

namespace ckpt::agent {

// Returns the time for all items on a typical server. CRIU stops, queries and starts each thread, opens each
// file and maps each piece of memory separately. A node's own factor is measured (pause_costs.h).
[[nodiscard]] Nanos dump_cost(const host::TreeSize& size);
[[nodiscard]] Nanos restore_cost(const host::TreeSize& size);

// Returns the bytes of a context that a driver saves into its process's host memory: code, stacks and heaps.
// A driver 580.159.04 saves 518 MiB on an H100. The result does not include `region_bytes`, the memory that
// is copied separately. The result is 0 if the driver does not count.
[[nodiscard]] std::uint64_t context_bytes(const MigrationContext& context, const host::TreeSize& tree,
                                          std::uint64_t region_bytes);

// The work of a pause on host memory, in bytes.
struct HostMemoryWork {
  std::uint64_t read = 0;      // bytes that the dump reads; they are sent and verified
  std::uint64_t restored = 0;  // bytes that are restored before the process continues
  Nanos scan = 0;              // time to scan pages that are already at the target
};
// Returns the work if nothing was copied ahead. `named_bytes` is the part of size.private_bytes in named
// memory and cache files. Device memory that a mover copies (`region_bytes`) is not host memory, although the
// driver may store it in the process.
[[nodiscard]] HostMemoryWork host_memory_work(const host::TreeSize& size, std::uint64_t region_bytes,
                                              std::uint64_t named_bytes);
// Returns the work if `ahead` of the bytes were copied ahead, of which `rest` were written since.
// `leaves_out` means that CRIU leaves out the other bytes (left_out_pages.h).
[[nodiscard]] HostMemoryWork copied_ahead(HostMemoryWork work, std::uint64_t ahead, std::uint64_t rest,
                                          bool leaves_out);
// Returns the work of a process move. `streams` means that pages are sent during the dump.
[[nodiscard]] PauseWork process_work(const host::TreeSize& size, const HostMemoryWork& memory,
                                     std::uint64_t region_bytes, bool streams, bool imports);
// Checks whether this node has enough memory to stream so many bytes, even for a target on the same node.
[[nodiscard]] bool can_stream(std::uint64_t largest_bytes);

class ProcessSource final : public SourceMode {
 public:
  ProcessSource(MigrationContext& context, JobOperation operation)
      : context_(context), operation_(std::move(operation)) {}
  [[nodiscard]] bool sends_host_state() const override { return true; }
  [[nodiscard]] wire::Bytes payload() const override { return files_; }
  [[nodiscard]] PauseWork pause_work(const Job& job, const local::StateSummary& summary) const override;
  Task<Result<void>> check(std::shared_ptr<Job> job) override;
  Result<void> check_target(const EndpointPayload& target) override;
  [[nodiscard]] wire::MoveNeeds needs() const override;
  std::optional<GrowingHostState> growing_host_state(HostGrowth grew, bool target_reads_log) override;
  void host_state_sent(std::uint64_t bytes) override;
  [[nodiscard]] HostProgress host_progress() const override;
  Task<> settle_host_state() override;
  Task<Result<HostState>> save(std::shared_ptr<Job> job, PausedState paused,
                               wire::SourceReport& report) override;
  Task<Result<void>> go_back(std::shared_ptr<Job> job) override;
  Task<> release() override;
  Task<> leave(std::shared_ptr<Job> job) override;

 private:
  Task<Result<HostState>> dump(std::shared_ptr<Job> job);
  // Refuses a job whose own folders hold too much, and adds their size to named_bytes_.
  Task<Result<void>> measure_own_memory(pid_t root);
  Result<void> write_notes(const Job& job, const std::string& folder, bool has_connections);
  Task<Result<void>> open_stream(pid_t root, std::uint64_t beside_bytes);
  Task<Result<void>> end_rounds(std::shared_ptr<Job> job);
  Task<bool> follow_memory(pid_t root, std::uint64_t context_bytes);
  Result<host::PlacedPages> finish_pages(const std::string& folder);
  // Returns the log of the rounds or of the stream. Exactly one of the two exists.
  [[nodiscard]] const host::MemoryLog& log() const;
  Result<void> begin_pages(const std::string& folder, const host::DumpEstimate& estimate);

  MigrationContext& context_;
  const JobOperation operation_;
  std::optional<host::Criu> criu_;  // found during the preparation, not in the downtime
  host::TreeSize size_;
  Milliseconds limit_ = host::kStuckAfter;  // time limit of work on all memory of the process, derived from
                                            // its size before the pause
  host::FileList listed_;                   // open files of the process
  wire::Bytes files_;                       // listed_ in encoded form
  std::uint64_t named_bytes_ = 0;  // bytes of memory in /dev/shm and of cache files, which size_ includes
  std::uint64_t own_bytes_ = 0;    // the part of named_bytes_ that is in the job's own folders
  // At most one of these two exists, and it has its memory before the pause. If neither exists, the pages are
  // sent after all pages are dumped.
  std::shared_ptr<MemoryRounds> rounds_;
  std::unique_ptr<host::PageStream> stream_;
  host::FileRules rules_;
  host::BoundPorts ports_;
  host::ConnectionRepair repair_;
  bool has_connections_ = false;
  host::OwnNamespaces own_;
  HostGrowth grew_;
};

class ProcessTarget final : public TargetMode {
 public:
  ProcessTarget(MigrationContext& context, JobOperation operation)
      : context_(context), operation_(std::move(operation)) {}
  std::shared_ptr<Job> find() override;
  Task<Result<std::shared_ptr<Job>>> start() override;
  Task<Result<void>> ready(std::shared_ptr<Job> job) override;
  Task<Result<void>> compare(wire::Bytes payload) override;
  Task<Result<std::shared_ptr<Job>>> bring() override;
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
  Task<Result<std::shared_ptr<Job>>> restore();
  Task<Result<void>> accept(std::shared_ptr<Job> job);
  Task<Result<void>> deposit(std::shared_ptr<Job> job);
  Task<Result<void>> keep_running(std::shared_ptr<KeeperLink> keeper, RunOrder order);
  Task<Result<void>> resume(std::shared_ptr<Job> job, RunOrder order, wire::TargetReport* report);

  MigrationContext& context_;
  const JobOperation operation_;
  std::optional<host::Criu> criu_;
  bool restores_lazily_ = false;
  HostState image_;
  bool is_held_ = false;  // true while the program is held and has not run here
  std::uint64_t image_bytes_ = 0;
  host::TreeSize size_;           // size of the processes after they run here
  std::uint64_t lazy_bytes_ = 0;  // bytes that restore() lets follow the running process
  host::CheckedFiles checked_;    // files that compare() has accepted
  host::TaskSettings settings_;   // settings from the image

  std::vector<std::string> remarks_;  // remarks on the restored process, for the report

  MadeResources made_;
  std::set<pid_t> stopped_;  // processes that the program itself had stopped (stopped_processes.h)
  std::map<std::uint64_t, std::pair<local::RegionRecord, UniqueFd>>
      memory_;  // memory by region, until the keeper owns it
};

}  // namespace ckpt::agent
