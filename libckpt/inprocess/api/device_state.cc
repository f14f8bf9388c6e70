// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/api/device_state.h"

#include <cstring>
#include <utility>

namespace ckpt::job {
namespace {

constexpr std::size_t kMaxTensors = 65536;

Error mismatch(const std::string& name, const std::string& cause) {
  return Error(ErrorCode::kRefused, "Tensor '" + name + "' does not match: " + cause);
}

}  // namespace

DeviceState::~DeviceState() {
  if (own_.empty() && foreign_.empty()) return;
  const ContextScope scope(*api_, context_);
  own_.clear();
  foreign_.clear();
}

Result<void> DeviceState::use_current_context() {
  if (api_ == nullptr) {
    CKPT_TRY(api, load_driver());
    api_ = api;
  }
  CUcontext current = nullptr;
  if (api_->cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == nullptr) {
    return Error(ErrorCode::kInvalidArgument,
                 "No CUDA context is current on this thread; make one current first");
  }
  if (context_ == current) return ok();
  if (context_ != nullptr) {
    return Error(ErrorCode::kRefused,
                 "A rank must use one GPU and one CUDA context, but a different context is current now");
  }
  CUdevice device = 0;
  CUuuid uuid{};
  CKPT_CUDA_TRY(*api_, cuCtxGetDevice(&device));
  CKPT_CUDA_TRY(*api_, cuDeviceGetUuid_v2(&uuid, device));
  std::memcpy(device_uuid_.data(), uuid.bytes, device_uuid_.size());
  device_ = device;
  context_ = current;
  return ok();
}

Result<Region> DeviceState::allocate(std::uint64_t bytes) {
  CKPT_TRYV(use_current_context());
  CKPT_TRY(memory, DeviceMemory::create(*api_, device_, bytes));
  CKPT_TRY(region, regions_.add(memory.pointer(), memory.bytes()));
  own_.emplace(region.id, std::move(memory));
  return region;
}

Result<Region> DeviceState::check_free(CUdeviceptr pointer) const {
  const Region* region = regions_.containing(pointer, 1);
  if (region == nullptr || region->pointer != pointer || !own_.contains(region->id)) {
    return Error(ErrorCode::kInvalidArgument, "The pointer does not come from ckpt_alloc");
  }
  if (const Tensor* tensor = tensors_.any_in_region(region->id)) {
    return Error(ErrorCode::kInvalidArgument,
                 "Tensor '" + tensor->name + "' lies in this memory; call ckpt_drop first");
  }
  return *region;
}

void DeviceState::free(const Region& region) {
  const ContextScope scope(*api_, context_);
  own_.erase(region.id);
  regions_.remove(region.id);
}

std::optional<std::uint64_t> DeviceState::region_of_handle(CUmemGenericAllocationHandle handle) const {
  for (const auto& [id, memory] : own_) {
    if (memory.handle() == handle) return id;
  }
  for (const auto& [id, allocation] : foreign_) {
    if (allocation.handle() == handle) return id;
  }
  return std::nullopt;
}

// Finds the region of the tensor's bytes, or makes a region of memory that the program has allocated itself.
// Leaves kNoRegion if the memory cannot be exported, or if the tensor spans several allocations.
Result<std::optional<Region>> DeviceState::place(Tensor& tensor) {
  if (const Region* known = regions_.containing(tensor.pointer, tensor.bytes)) {
    tensor.region = known->id;
    tensor.offset = tensor.pointer - known->pointer;
    return std::optional<Region>();
  }
  Result<ForeignAllocation> found = ForeignAllocation::find(*api_, tensor.pointer);
  if (!found.has_value()) return std::optional<Region>();
  ForeignAllocation& allocation = *found;
  const std::uint64_t offset = tensor.pointer - allocation.base();
  if (offset >= allocation.bytes() || tensor.bytes > allocation.bytes() - offset)
    return std::optional<Region>();
  tensor.offset = offset;
  if (const auto alias = region_of_handle(allocation.handle())) {
    tensor.region = *alias;
    return std::optional<Region>();
  }
  CKPT_TRY(region, regions_.add(allocation.base(), allocation.bytes()));
  foreign_.emplace(region.id, std::move(allocation));
  tensor.region = region.id;
  return std::optional<Region>(region);
}

Result<DeviceState::Named> DeviceState::name(Tensor tensor) {
  CKPT_TRYV(use_current_context());
  if (tensors_.by_name().size() >= kMaxTensors) {
    return Error(ErrorCode::kRefused, "At most " + std::to_string(kMaxTensors) + " tensors can be named");
  }
  CKPT_TRY(new_region, place(tensor));
  const local::TensorRecord record = to_record(tensor);
  Result<void> added = tensors_.add(std::move(tensor));
  if (!added.has_value()) {
    if (new_region) {
      foreign_.erase(new_region->id);
      regions_.remove(new_region->id);
    }
    return std::move(added).error();
  }
  return Named{record, new_region};
}

Result<std::optional<Region>> DeviceState::drop(const std::string& name) {
  const Tensor* tensor = tensors_.find(name);
  if (tensor == nullptr) return Error(ErrorCode::kInvalidArgument, "There is no tensor named '" + name + "'");
  const std::uint64_t id = tensor->region;
  tensors_.remove(name);
  if (!foreign_.contains(id) || tensors_.any_in_region(id) != nullptr) return std::optional<Region>();
  const Region region = *regions_.find(id);
  {
    const ContextScope scope(*api_, context_);
    foreign_.erase(id);
  }
  regions_.remove(id);
  return std::optional<Region>(region);
}

std::vector<local::TensorRecord> DeviceState::tensor_records() const {
  std::vector<local::TensorRecord> records;
  for (const auto& [name, tensor] : tensors_.by_name()) records.push_back(to_record(tensor));
  return records;
}

local::RegionRecord DeviceState::record_of(const Region& region) const {
  return {region.id, region.generation, region.bytes, device_uuid_};
}

std::vector<local::RegionRecord> DeviceState::region_records() const {
  std::vector<local::RegionRecord> records;
  for (const auto& [pointer, region] : regions_.by_pointer()) records.push_back(record_of(region));
  return records;
}

local::StateSummary DeviceState::summary() const {
  local::StateSummary summary;
  summary.tensors = tensors_.by_name().size();
  summary.regions = regions_.size();
  for (const auto& [pointer, region] : regions_.by_pointer()) summary.region_bytes += region.bytes;
  summary.state_bytes = tensors_.state_bytes();
  summary.unexportable_bytes = tensors_.unexportable_bytes();
  summary.movable = summary.unexportable_bytes <= local::kMaxUnexportableBytes ? 1 : 0;
  if (summary.movable == 0) {
    const Tensor* largest = tensors_.largest_unexportable();
    const std::string mib = std::to_string(summary.unexportable_bytes >> 20);
    summary.reason.assign(
        mib + " MiB of named memory cannot be exported, but at most " +
        std::to_string(local::kMaxUnexportableBytes >> 20) +
        " MiB of such memory can move with the host state: allocate this memory with ckpt_alloc, or with "
        "cuMemCreate and CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; the largest is tensor '" +
        largest->name + "'");
  }
  return summary;
}

Result<UniqueFd> DeviceState::export_region(std::uint64_t id) const {
  const ContextScope scope(*api_, context_);
  if (const auto own = own_.find(id); own != own_.end()) return own->second.export_fd();
  if (const auto other = foreign_.find(id); other != foreign_.end())
    return export_allocation(*api_, other->second.handle());
  return Error(ErrorCode::kInternal, "Region " + std::to_string(id) + " is unknown");
}

Result<void> DeviceState::synchronize() const {
  if (context_ == nullptr) return ok();
  const ContextScope scope(*api_, context_);
  CKPT_CUDA_TRY(*api_, cuCtxSynchronize());
  return ok();
}

Result<void> DeviceState::plan(std::vector<PlannedEntry>& entries) const {
  if (tensors_.unexportable_bytes() > local::kMaxUnexportableBytes) {
    return Error(ErrorCode::kRefused, summary().reason.str());
  }
  for (const auto& [name, tensor] : tensors_.by_name()) {
    if (!tensor.travels_with_host_state()) continue;
    entries.push_back({EntryKind::kTensor, name, tensor.bytes,
                       [this, pointer = tensor.pointer](std::span<std::byte> out) -> Result<void> {
                         const ContextScope scope(*api_, context_);
                         CKPT_CUDA_TRY(*api_, cuMemcpyDtoH_v2(out.data(), pointer, out.size()));
                         return ok();
                       }});
  }
  return ok();
}

Result<void> DeviceState::check(const StateImage& image, const AllowedDifferences& allowed) const {
  for (const StateEntry& entry : image.entries()) {
    if (entry.kind != EntryKind::kTensor) continue;
    const Tensor* tensor = tensors_.find(entry.name);
    if (tensor == nullptr && allowed.missing) continue;
    if (tensor == nullptr) return mismatch(entry.name, "this instance has no tensor of that name");
    if (tensor->bytes != entry.data.size() && !allowed.changed) {
      return mismatch(entry.name, "the source has " + std::to_string(entry.data.size()) +
                                      " bytes, but this instance has " + std::to_string(tensor->bytes));
    }
  }
  for (const auto& [name, tensor] : tensors_.by_name()) {
    const bool is_new = tensor.travels_with_host_state() && image.find(EntryKind::kTensor, name) == nullptr;
    if (is_new && !allowed.is_new) {
      return mismatch(name,
                      "its memory at the target cannot be exported, and the source did not send the tensor "
                      "with the host state");
    }
  }
  return ok();
}

Result<void> DeviceState::apply(const StateImage& image) const {
  for (const StateEntry& entry : image.entries()) {
    if (entry.kind != EntryKind::kTensor) continue;
    const Tensor* tensor = tensors_.find(entry.name);
    // Skips the tensor, because check() has allowed the difference.
    if (tensor == nullptr || tensor->bytes != entry.data.size()) continue;
    const ContextScope scope(*api_, context_);
    CKPT_CUDA_TRY(*api_, cuMemcpyHtoD_v2(tensor->pointer, entry.data.data(), entry.data.size()));
  }
  return synchronize();
}

}  // namespace ckpt::job
