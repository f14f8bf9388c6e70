// SPDX-License-Identifier: Apache-2.0
// The state of a rank on its GPU: memory from ckpt_alloc, allocations that the program has made itself, and
// the tensors in them.
// Threads: no lock inside; the session locks. Ownership: the memory of allocate(), and the retained handles
// of foreign allocations. The driver is loaded at the first call that needs it. The first context found
// becomes the rank's context: one GPU per rank. Errors: kInvalidArgument, kOutOfMemory, kRefused (limits),
// driver errors.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/cuda/driver.h"
#include "libckpt/inprocess/api/allowed_differences.h"
#include "libckpt/inprocess/api/state_image.h"
#include "libckpt/inprocess/api/tensor_table.h"
#include "libckpt/inprocess/local/messages.h"
#include "libckpt/inprocess/memory/device_memory.h"
#include "libckpt/inprocess/memory/region_table.h"

namespace ckpt::job {

class DeviceState {
 public:
  ~DeviceState();

  Result<Region> allocate(std::uint64_t bytes);
  // Returns the region of a pointer from allocate(), if it may be freed now. Returns kInvalidArgument with
  // the name of a tensor that still lies in it.
  Result<Region> check_free(CUdeviceptr pointer) const;
  void free(const Region& region);

  struct Named {
    local::TensorRecord record;
    std::optional<Region> new_region;
  };
  // Fills in region and offset of `tensor` and adds it.
  Result<Named> name(Tensor tensor);
  // Drops a tensor. Returns the region that is no longer known because this was its last tensor, if any.
  Result<std::optional<Region>> drop(const std::string& name);

  [[nodiscard]] std::vector<local::TensorRecord> tensor_records() const;
  [[nodiscard]] std::vector<local::RegionRecord> region_records() const;
  [[nodiscard]] local::RegionRecord record_of(const Region& region) const;
  [[nodiscard]] const Region* find_region(std::uint64_t id) const { return regions_.find(id); }
  // Returns the summary without the session's parts: `ready` and the host state's size.
  [[nodiscard]] local::StateSummary summary() const;
  Result<UniqueFd> export_region(std::uint64_t id) const;

  // Waits for all work of the context, if there is one.
  Result<void> synchronize() const;

  // Appends one entry for each tensor that travels with the host state.
  Result<void> plan(std::vector<PlannedEntry>& entries) const;
  // Checks an image. Returns kRefused with the tensor's name in two cases: an entry has no tensor of its size
  // here, or a tensor here needs an entry that `image` lacks.
  Result<void> check(const StateImage& image, const AllowedDifferences& allowed = {}) const;
  Result<void> apply(const StateImage& image) const;

 private:
  Result<void> use_current_context();
  Result<std::optional<Region>> place(Tensor& tensor);
  [[nodiscard]] std::optional<std::uint64_t> region_of_handle(CUmemGenericAllocationHandle handle) const;

  const DriverApi* api_ = nullptr;
  CUcontext context_ = nullptr;
  CUdevice device_ = 0;
  std::array<std::uint8_t, 16> device_uuid_{};
  RegionTable regions_;
  TensorTable tensors_;
  std::map<std::uint64_t, DeviceMemory> own_;           // memory from ckpt_alloc, by region id
  std::map<std::uint64_t, ForeignAllocation> foreign_;  // the program's own allocations, by region id
};

}  // namespace ckpt::job
