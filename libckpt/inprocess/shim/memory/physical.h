// SPDX-License-Identifier: Apache-2.0
// The driver calls behind a region: making, mapping, unmapping, importing and letting go of its memory. What
// fails half-way is taken back.
// Threads: any; the caller keeps two calls off the same region. Errors: the driver's codes. Units: bytes.
#pragma once

#include <cstdint>
#include <string>

#include "libckpt/base/error.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/inprocess/shim/core/real_driver.h"
#include "libckpt/inprocess/shim/memory/region_store.h"

namespace ckpt::shim {

// A device's support for memory that moves.
struct DeviceFacts {
  bool movable = false;  // virtual memory management and descriptors
  bool rdma = false;
  std::uint64_t granule = 0;  // of physical memory, a power of two
};
DeviceFacts facts_of(const RealDriver& driver, int device);

// Exportable memory of this device, which network adapters reach where the device can have that.
CUmemAllocationProp block_property(const DeviceFacts& facts, int device);
CUmemAccessDesc access_of(int device, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

// Creates region.handle by region.made.
CUresult create_physical(const RealDriver& driver, Region& region);
// Maps region.handle at all of its mappings, with their access.
CUresult map_everywhere(const RealDriver& driver, const Region& region);
CUresult map_one(const RealDriver& driver, const Mapping& mapping, CUmemGenericAllocationHandle handle);
// If a mapping cannot be taken away, those before it are mapped again.
CUresult unmap_everywhere(const RealDriver& driver, const Region& region);

Result<UniqueFd> export_physical(const RealDriver& driver, CUmemGenericAllocationHandle handle);

// A driver's refusal as an Error: "what (CUDA 2 CUDA_ERROR_OUT_OF_MEMORY)".
Error driver_error(const RealDriver& driver, CUresult result, const std::string& what);

// Makes a context of `device` current where the thread has none; some calls want any one. The primary one if
// it is active, else `other` (may be null).
class SomeContext {
 public:
  SomeContext(const RealDriver& driver, int device, CUcontext other);
  ~SomeContext();
  SomeContext(const SomeContext&) = delete;
  SomeContext& operator=(const SomeContext&) = delete;

 private:
  const RealDriver& driver_;
  int device_;
  bool pushed_ = false;
  bool retained_ = false;
};

}  // namespace ckpt::shim
