// SPDX-License-Identifier: Apache-2.0
// Release and return of device memory while the gate is closed.
#include <algorithm>
#include <utility>

#include "libckpt/base/fault.h"
#include "libckpt/inprocess/shim/core/job_state.h"
#include "libckpt/inprocess/shim/rank/rank_session.h"

namespace ckpt::shim {
namespace {

using local::MessageType;

Error not_paused() {
  return Error(ErrorCode::kRefused, "The rank is not paused");
}

Identity identity_from(const local::GpuIdentity& gpu) {
  Identity identity{
      static_cast<int>(gpu.pci_domain), static_cast<int>(gpu.pci_bus), static_cast<int>(gpu.pci_device), {}};
  std::copy(gpu.uuid.begin(), gpu.uuid.end(), identity.uuid.begin());
  return identity;
}

}  // namespace

// Releases the memory, but only if the keeper's set contains exactly this process's regions, because the job
// then depends on that set.
Result<void> RankSession::release(std::uint64_t request, const local::Release& held) {
  if (state_ != State::kPaused) return refuse(request, MessageType::kRelease, not_paused());
  std::uint64_t digest = 0;
  const std::vector<RegionInfo> regions = shim_memory().regions();
  for (const RegionInfo& region : regions) digest += local::region_digest(region.id, region.generation);
  const bool exact = held.regions == regions.size() && held.digest == digest;
  if (held.discard == 0 && !exact) {
    return refuse(
        request, MessageType::kRelease,
        Error(ErrorCode::kRefused, "The keeper holds " + std::to_string(held.regions) +
                                       " regions, but the program has " + std::to_string(regions.size()) +
                                       ": export the program's regions before its memory is released"));
  }
  if (Result<void> done = shim_memory().release_all(); !done.has_value()) {
    return refuse(request, MessageType::kRelease, done.error());
  }
  fault_point(FaultPoint::kRankReleased);
  return send(request, local::Released{now_ns()});
}

Result<void> RankSession::map_batch(std::uint64_t request, const local::MapBatch& batch,
                                    std::span<const UniqueFd> descriptors) {
  if (state_ != State::kPaused) return refuse(request, MessageType::kMap, not_paused());
  std::map<std::uint64_t, RegionInfo> regions;
  for (const RegionInfo& region : shim_memory().regions()) regions.emplace(region.id, region);
  for (std::size_t i = 0; i < batch.records.size(); ++i) {
    const local::RegionRecord& record = batch.records[i];
    // Ids are never reused, and the maker of the memory numbers generations. A region that is unknown here
    // was freed while it was copied. The end of the batches shows whether a region is missing.
    const auto found = regions.find(record.id);
    if (found == regions.end()) continue;
    Result<void> mapped =
        found->second.bytes == record.bytes
            ? shim_memory().map_region(record.id, descriptors[i].get())
            : Error(ErrorCode::kInvalidArgument, "Region " + std::to_string(record.id) + " of " +
                                                     std::to_string(record.bytes) +
                                                     " bytes does not belong to this program");
    if (!mapped.has_value()) return give_up_mapping(request, mapped.error());
  }
  return send(request, local::MapAck{batch.sequence});
}

Result<void> RankSession::map_end(std::uint64_t request, const local::Map& map) {
  if (state_ != State::kPaused) return refuse(request, MessageType::kMap, not_paused());
  if (!shim_memory().whole()) {
    return give_up_mapping(request,
                           Error(ErrorCode::kInvalidArgument, "Not all regions of the program have arrived"));
  }
  for (std::uint32_t i = 0; i < map.gpu_count; ++i) {
    const local::GpuIdentity& gpu = map.gpus[i];
    if (gpu.ordinal >= uuids_.size()) continue;
    uuids_[gpu.ordinal] = gpu.uuid;
    set_identity(static_cast<int>(gpu.ordinal), identity_from(gpu));
  }
  fault_point(FaultPoint::kRankMapped);
  return send(request, local::Mapped{now_ns()});
}

// Releases the mapped part again, because incomplete memory is useless. Another set can then be tried.
Result<void> RankSession::give_up_mapping(std::uint64_t request, const Error& error) {
  (void)shim_memory().release_all().has_value();  // the next Map leaves the remaining regions unchanged
  return refuse(request, MessageType::kMap, error);
}

Result<void> RankSession::make(std::uint64_t request, const local::Make& order) {
  if (state_ != State::kPaused) return refuse(request, MessageType::kMake, not_paused());
  std::map<std::uint64_t, RegionInfo> regions;
  for (const RegionInfo& region : shim_memory().regions()) regions.emplace(region.id, region);
  local::Made made{order.sequence, {}};
  std::vector<UniqueFd> owned;
  std::vector<int> descriptors;
  // Regions are found by id alone, as in map_batch().
  for (const local::RegionKey& key : order.records) {
    const auto found = regions.find(key.id);
    if (found == regions.end()) {
      return refuse(request, MessageType::kMake,
                    Error(ErrorCode::kInvalidArgument, "There is no region " + std::to_string(key.id)));
    }
    Result<UniqueFd> fd = shim_memory().make_region(key.id);
    if (!fd.has_value()) return refuse(request, MessageType::kMake, fd.error());
    owned.push_back(*std::move(fd));
    descriptors.push_back(owned.back().get());
    made.records.push_back(record_of(found->second));
  }
  return send(request, std::move(made), descriptors);
}

}  // namespace ckpt::shim
