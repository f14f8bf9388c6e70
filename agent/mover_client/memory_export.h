// SPDX-License-Identifier: Apache-2.0
// Passes a rank's tensors and device memory to a mover: rank -> keeper -> agent -> mover, in acknowledged
// batches of at most 64 descriptors. Afterwards it tracks the tensors and regions that the rank names, drops,
// allocates and frees while rounds run (ENG-5, ENG-7). On request it keeps copies of the descriptors, so that
// exported memory outlives a rank that exits.
// Threads: the event loop. Ownership: shared. stop() ends the tracking. Errors: run() returns the first
// failure. Later failures go to `failed`, once.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "agent/jobs/keeper_link.h"
#include "agent/mover_client/mover_session.h"

namespace ckpt::agent {

class MemoryExport : public std::enable_shared_from_this<MemoryExport> {
 public:
  struct Settings {
    Milliseconds timeout{10000};  // time limit of each step of the export
    bool retain_descriptors = false;
    std::function<void(Error)> failed;
  };
  static std::shared_ptr<MemoryExport> create(std::shared_ptr<KeeperLink> keeper,
                                              std::shared_ptr<MoverSession> session, Settings settings);

  // Exports all existing memory, and then tracks changes until stop() or until the keeper's link is closed.
  Task<Result<local::StateSummary>> run(asio::any_io_executor executor);
  // Stops the tracking, and sends the rank StopExport.
  Task<> stop();
  void close_descriptors() { kept_.clear(); }

 private:
  MemoryExport(std::shared_ptr<KeeperLink> keeper, std::shared_ptr<MoverSession> session, Settings settings);
  Task<Result<void>> handle(KeeperMessage message);
  Task<Result<void>> receive_batch(local::ExportBatch batch, std::vector<UniqueFd> descriptors);
  Task<Result<void>> handle_freed(local::RegionFreed freed);
  Result<void> receive_tensors(const local::Tensors& tensors);
  Task<> follow();

  std::shared_ptr<KeeperLink> keeper_;
  std::shared_ptr<MoverSession> session_;
  Settings settings_;
  std::unique_ptr<KeeperLink::Exchange> exchange_;
  std::vector<wire::TensorInfo> early_tensors_;  // tensors that were named before their regions arrived
  std::map<std::uint64_t, UniqueFd> kept_;       // copies of the exported descriptors, by region
  local::StateSummary summary_;
  bool complete_ = false;
  bool stopped_ = false;
};

}  // namespace ckpt::agent
