// SPDX-License-Identifier: Apache-2.0
// The driver calls behind a region: making, mapping, unmapping, importing and releasing its memory. A call
// that fails halfway is undone.
// Threads: any; the caller must not run two calls on the same region. Errors: the driver's codes. Units:
// bytes.
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
  bool movable = false;  // whether the device supports virtual memory management and descriptors
  bool rdma = false;
  std::uint64_t granule = 0;  // the granularity of physical memory, a power of two
};
DeviceFacts facts_of(const RealDriver& driver, int device);

// Returns the properties of exportable memory on this device. Network adapters can access such memory if the
// device supports that.
CUmemAllocationProp block_property(const DeviceFacts& facts, int device);
CUmemAccessDesc access_of(int device, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

// Creates region.handle with the properties in region.made.
CUresult create_physical(const RealDriver& driver, Region& region);
// Maps region.handle at all of its mappings, with their access.
CUresult map_everywhere(const RealDriver& driver, const Region& region);
CUresult map_one(const RealDriver& driver, const Mapping& mapping, CUmemGenericAllocationHandle handle);
// Removes all mappings. If one mapping cannot be removed, the earlier ones are mapped again.
CUresult unmap_everywhere(const RealDriver& driver, const Region& region);

Result<UniqueFd> export_physical(const RealDriver& driver, CUmemGenericAllocationHandle handle);

// Returns a driver's refusal as an Error: "what (CUDA 2 CUDA_ERROR_OUT_OF_MEMORY)".
Error driver_error(const RealDriver& driver, CUresult result, const std::string& what);

// A scope in which the thread has a current context, because some driver calls need any context. If the
// thread has none, the constructor makes a context of `device` current. It is the primary context if that is
// active, otherwise `other` (may be null).
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
