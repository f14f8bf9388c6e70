// SPDX-License-Identifier: Apache-2.0
// A running export: the regions that the mover knows, while the program continues to allocate and free.
#include <utility>

#include "libckpt/inprocess/local/batches.h"
#include "libckpt/inprocess/shim/rank/rank_session.h"

namespace ckpt::shim {

void RankSession::listen() {
  shim_memory().on_change({.added = [this](const RegionInfo& region) { region_added(region); },
                           .freed = [this](const RegionInfo& region) { region_freed(region); },
                           .wait_for_frees = [this] { return wait_for_frees(); }});
}

Result<void> RankSession::start_export(std::uint64_t request) {
  announced_.clear();
  std::vector<std::uint64_t> ids;
  std::vector<local::TensorRecord> tensors;
  for (const RegionInfo& region : shim_memory().regions()) {
    ids.push_back(region.id);
    tensors.push_back(tensor_of(region));
    announced_.emplace(region.id, region);
  }
  exports_.start(request, ids);
  freed_.notify_all();
  CKPT_TRYV(local::in_batches<local::Tensors>(
      tensors, [&](local::Body body) { return send(request, std::move(body)); }));
  return pump_exports();
}

// Sends the batches that can be sent now. A region that cannot be exported terminates the export, not the
// program.
Result<void> RankSession::pump_exports() {
  while (const std::optional<local::ExportStream::Batch> batch = exports_.next_batch()) {
    CKPT_TRYV(send_batch(*batch));
  }
  if (exports_.consume_initial_end()) {
    CKPT_TRYV(send(exports_.request(), local::ExportEnd{summary()}));
  }
  return ok();
}

Result<void> RankSession::send_batch(const local::ExportStream::Batch& batch) {
  local::ExportBatch message{batch.sequence, {}};
  std::vector<UniqueFd> owned;
  std::vector<int> descriptors;
  for (const std::uint64_t id : batch.regions) {
    Result<UniqueFd> fd = shim_memory().export_region(id);
    if (!fd.has_value() && fd.error().code() == ErrorCode::kNotFound) {
      exports_.forget(id);  // the region was freed meanwhile; region_freed is called later, or was already
                            // called
      continue;
    }
    if (!fd.has_value()) {
      const std::uint64_t request = exports_.request();
      exports_.stop();
      announced_.clear();
      return refuse(request, local::MessageType::kExport, fd.error());
    }
    owned.push_back(*std::move(fd));
    descriptors.push_back(owned.back().get());
    message.records.push_back(record_of(announced_.at(id)));
  }
  if (!message.records.empty()) return send(exports_.request(), std::move(message), descriptors);
  exports_.acknowledged(batch.sequence);
  return ok();
}

// Reports a new region. A failed send means that the keeper has exited: the service thread detects that and
// terminates the process.
void RankSession::region_added(const RegionInfo& region) {
  const std::lock_guard lock(mutex_);
  if (!exports_.active() || !announced_.emplace(region.id, region).second) return;
  exports_.region_added(region.id);
  if (!send(exports_.request(), local::Tensors{{tensor_of(region)}}).has_value()) return;
  (void)pump_exports().has_value();
}

void RankSession::region_freed(const RegionInfo& region) {
  const std::lock_guard lock(mutex_);
  if (!exports_.active() || announced_.erase(region.id) == 0) return;
  const bool sent = exports_.region_freed(region.id, region.generation);
  (void)send(exports_.request(), local::TensorDropped{tensor_of(region).name}).has_value();
  if (sent) (void)send(exports_.request(), local::RegionFreed{region.id, region.generation}).has_value();
}

bool RankSession::wait_for_frees() {
  std::unique_lock lock(mutex_);
  if (!exports_.waits_for_frees()) return false;
  const std::uint64_t before = frees_answered_;
  freed_.wait(lock, [&] { return frees_answered_ != before || !exports_.waits_for_frees(); });
  return true;
}

}  // namespace ckpt::shim
