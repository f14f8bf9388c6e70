// SPDX-License-Identifier: Apache-2.0
// cuMemAlloc, pinned host memory, peers, and the addresses that copies use.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "tests/simulators/cudasim/card/settings.h"
#include "tests/simulators/cudasim/driver/backing/file_behind.h"
#include "tests/simulators/cudasim/driver/memory.h"
#include "tests/simulators/cudasim/driver/process.h"

#ifndef MADV_COLLAPSE  // Linux 6.1 has this constant, older headers do not
#define MADV_COLLAPSE 25
#endif

namespace cudasim {
namespace {

constexpr std::uint64_t kBlockAlignment = 512;
constexpr std::uint64_t kSmall = std::uint64_t{1} << 20;  // smaller allocations share a slab
constexpr std::uint64_t kPage = 4096;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

CUresult Memory::prepare(Context* context, std::uint64_t bytes, std::shared_ptr<Physical>* out) {
  if (bytes < kSmall) return CUDA_SUCCESS;
  if (bytes > kDeviceBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, context->ordinal()};
  return create(context, round_up(bytes, kGranularity), properties, true, out);
}

CUresult Memory::allocate_mapping(Context* context, const std::shared_ptr<Physical>& physical,
                                  std::uint64_t* address) {
  const std::uint64_t bytes = physical->bytes;
  const std::uint64_t at = device_addresses_.take(bytes, kGranularity);
  if (at == 0) {
    drop_if_unused(physical);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Mapping& mapping = mappings_[at];
  mapping.address = at;
  mapping.physical = physical;
  mapping.only = context;
  physical->mappings = 1;
  CUresult result = make_live(&mapping, context, true);
  for (Context* other : Process::get().contexts) {
    const auto used = peers_.find(other);
    if (result != CUDA_SUCCESS || used == peers_.end()) continue;
    if (std::find(used->second.begin(), used->second.end(), context) == used->second.end()) continue;
    result = make_live(&mapping, other, true);
  }
  if (result != CUDA_SUCCESS) {
    erase_mapping(mappings_.find(at));
    device_addresses_.give(at, bytes);
    return result;
  }
  *address = at;
  return CUDA_SUCCESS;
}

CUresult Memory::allocate_small(Context* context, std::uint64_t bytes, std::uint64_t* address) {
  for (auto& [base, slab] : slabs_) {
    if (mappings_[base].only != context) continue;
    *address = slab.free.take(bytes, kBlockAlignment);
    if (*address == 0) continue;
    slab.blocks++;
    blocks_[*address] = {bytes, base};
    return CUDA_SUCCESS;
  }
  std::uint64_t base = 0;
  std::shared_ptr<Physical> physical;
  CUresult result = prepare(context, kGranularity, &physical);
  if (result == CUDA_SUCCESS) result = allocate_mapping(context, physical, &base);
  if (result != CUDA_SUCCESS) return result;
  Slab& slab = slabs_.emplace(base, Slab{Ranges(base, kGranularity)}).first->second;
  *address = slab.free.take(bytes, kBlockAlignment);
  slab.blocks = 1;
  blocks_[*address] = {bytes, base};
  return CUDA_SUCCESS;
}

CUresult Memory::allocate(Context* context, std::uint64_t bytes, const std::shared_ptr<Physical>& prepared,
                          std::uint64_t* address) {
  if (prepared == nullptr) return allocate_small(context, round_up(bytes, kBlockAlignment), address);
  const CUresult result = allocate_mapping(context, prepared, address);
  if (result == CUDA_SUCCESS) blocks_[*address] = {bytes, *address};
  return result;
}

CUresult Memory::free_block(std::uint64_t address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return CUDA_ERROR_INVALID_VALUE;
  const Block block = found->second;
  blocks_.erase(found);
  const auto slab = slabs_.find(block.mapping);
  if (slab != slabs_.end()) {
    slab->second.free.give(address, block.bytes);
    if (--slab->second.blocks > 0) return CUDA_SUCCESS;
    slabs_.erase(slab);
  }
  const auto mapping = mappings_.find(block.mapping);
  const std::uint64_t bytes = mapping->second.physical->bytes;
  erase_mapping(mapping);
  device_addresses_.give(block.mapping, bytes);
  return CUDA_SUCCESS;
}

bool Memory::range_of(std::uint64_t address, std::uint64_t* base, std::uint64_t* bytes) const {
  const Mapping* mapping = find_mapping(address);
  if (mapping == nullptr) return false;
  *base = mapping->address;
  *bytes = mapping->physical->bytes;
  if (!mapping->physical->plain) return true;
  const auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return false;
  const auto found = std::prev(next);
  *base = found->first;
  *bytes = found->second.bytes;
  return address < found->first + found->second.bytes;
}

Context* Memory::context_of(std::uint64_t address) const {
  const Mapping* mapping = find_mapping(address);
  if (mapping != nullptr) return mapping->physical->owner;
  const auto next = globals_.upper_bound(address);
  if (next == globals_.begin()) return nullptr;
  const auto found = std::prev(next);
  return address < found->first + found->second.bytes ? found->second.context : nullptr;
}

CUresult Memory::enable_peer(Context* user, Context* peer) {
  std::vector<Context*>& used = peers_[user];
  if (std::find(used.begin(), used.end(), peer) != used.end()) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  for (auto& [address, mapping] : mappings_) {
    if (mapping.only != peer) continue;
    const CUresult result = make_live(&mapping, user, true);
    if (result != CUDA_SUCCESS) return result;
  }
  used.push_back(peer);
  return CUDA_SUCCESS;
}

CUresult Memory::disable_peer(Context* user, Context* peer) {
  if (std::erase(peers_[user], peer) == 0) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  for (auto& [address, mapping] : mappings_) {
    if (mapping.only == peer) end_live(&mapping, user);
  }
  return CUDA_SUCCESS;
}

CUresult Memory::allocate_host(std::uint64_t bytes, unsigned flags, std::uint64_t* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > kHostBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  bytes = round_up(bytes, bytes < kGranularity ? kPage : kGranularity);
  const std::uint64_t at = host_addresses_.take(bytes, kGranularity);
  if (at == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const int fd = ::memfd_create("cudasim-host", MFD_CLOEXEC);
  void* where = reinterpret_cast<void*>(at);
  const int sharing = MAP_SHARED | MAP_FIXED;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
      ::mmap(where, bytes, PROT_READ | PROT_WRITE, sharing, fd, 0) != MAP_FAILED) {
    ::madvise(where, bytes, MADV_HUGEPAGE);
    ::madvise(where, bytes, MADV_POPULATE_WRITE);
    if (settings().huge_pages)
      ::madvise(where, bytes, MADV_COLLAPSE);  // applies regardless of the machine's setting for shared
                                               // memory
    result = CUDA_SUCCESS;
  }
  for (Context* context : Process::get().contexts) {
    if (result == CUDA_SUCCESS)
      result = context->call({Request::kHostMap, {at, bytes}}, fd, nullptr, nullptr);
  }
  host_[at] = {bytes, flags, fd};
  if (result != CUDA_SUCCESS) free_host(at);
  *address = at;
  return result;
}

CUresult Memory::free_host(std::uint64_t address) {
  const auto found = host_.find(address);
  if (found == host_.end() || found->second.fd < 0) return CUDA_ERROR_INVALID_VALUE;
  const HostBlock block = found->second;
  host_.erase(found);
  for (Context* context : Process::get().contexts) context->call({Request::kUnmap, {address, block.bytes}});
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  ::mmap(reinterpret_cast<void*>(address), block.bytes, PROT_NONE, flags, -1, 0);
  ::close(block.fd);
  host_addresses_.give(address, round_up(block.bytes, kPage));
  return CUDA_SUCCESS;
}

CUresult Memory::register_host(std::uint64_t address, std::uint64_t bytes, unsigned flags) {
  if (address == 0 || bytes == 0 || is_device_address(address)) return CUDA_ERROR_INVALID_VALUE;
  const auto next = host_.lower_bound(address);
  if (next != host_.end() && next->first < address + bytes) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  std::uint64_t base = 0;
  if (find_host(address, &base) != nullptr) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  HostBlock& block = host_[address] = {bytes, flags, kRegistered};
  map_registered(address, &block);
  return CUDA_SUCCESS;
}

// Maps registered memory of a file into the executors. If this is impossible, executors reach the memory
// through the program's process.
void Memory::map_registered(std::uint64_t address, HostBlock* block) {
  const int file = file_behind(address, block->bytes);
  if (file < 0) return;
  const std::uint64_t at = host_addresses_.take(round_up(block->bytes, kPage), kGranularity);
  bool mapped = at != 0;
  for (Context* context : Process::get().contexts)
    mapped = mapped &&
             context->call({Request::kHostMap, {at, block->bytes}}, file, nullptr, nullptr) == CUDA_SUCCESS;
  block->mapped_at = at;
  block->file = file;
  if (!mapped) unmap_registered(block);
}

void Memory::unmap_registered(HostBlock* block) {
  if (block->file < 0) return;
  if (block->mapped_at != 0) {
    for (Context* context : Process::get().contexts)
      context->call({Request::kUnmap, {block->mapped_at, block->bytes}});
    host_addresses_.give(block->mapped_at, round_up(block->bytes, kPage));
  }
  ::close(block->file);
  block->mapped_at = 0;
  block->file = -1;
}

CUresult Memory::unregister_host(std::uint64_t address) {
  const auto found = host_.find(address);
  if (found == host_.end() || found->second.fd >= 0) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  unmap_registered(&found->second);
  host_.erase(found);
  return CUDA_SUCCESS;
}

const HostBlock* Memory::find_host(std::uint64_t address, std::uint64_t* base) const {
  auto found = host_.upper_bound(address);
  if (found == host_.begin()) return nullptr;
  found = std::prev(found);
  *base = found->first;
  return address < found->first + found->second.bytes ? &found->second : nullptr;
}

void Memory::add_global(Context* context, std::uint64_t address, std::uint64_t bytes) {
  globals_[address] = {context, bytes};
}

void Memory::remove_global(std::uint64_t address) {
  globals_.erase(address);
}

bool Memory::inside_block(const Mapping& mapping, std::uint64_t address, std::uint64_t bytes) const {
  if (!mapping.physical->plain) return true;
  const auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return false;
  const auto found = std::prev(next);
  return address + bytes <= found->first + found->second.bytes;
}

// Resolves device memory. A range may span adjacent mappings, but all of them must be reached in the same
// way.
CUresult Memory::resolve_device(Context* context, std::uint64_t address, std::uint64_t bytes, bool write,
                                Side* side) const {
  for (std::uint64_t at = address; at < address + bytes;) {
    const Mapping* mapping = find_mapping(at);
    if (mapping == nullptr || mapping->live.empty()) return CUDA_ERROR_INVALID_VALUE;
    const std::uint64_t end = std::min(address + bytes, mapping->address + mapping->physical->bytes);
    if (!inside_block(*mapping, at, end - at)) return CUDA_ERROR_INVALID_VALUE;
    auto live = mapping->live.find(context);
    if (live == mapping->live.end()) live = mapping->live.begin();
    if (write && !live->second) return CUDA_ERROR_INVALID_VALUE;
    const pid_t pid = live->first == context ? 0 : live->first->executor();
    if (at != address && pid != side->pid) return CUDA_ERROR_INVALID_VALUE;
    side->pid = pid;
    at = end;
  }
  return CUDA_SUCCESS;
}

CUresult Memory::resolve(Context* context, std::uint64_t address, std::uint64_t bytes, bool write,
                         Side* side) const {
  *side = {};
  if (address + bytes < address) return CUDA_ERROR_INVALID_VALUE;
  if (address >= kDeviceBase && address < kDeviceBase + kDeviceBytes) {
    return resolve_device(context, address, bytes, write, side);
  }
  if (is_device_address(address)) {
    const auto next = globals_.upper_bound(address);
    if (next == globals_.begin()) return CUDA_ERROR_INVALID_VALUE;
    const auto found = std::prev(next);
    if (address + bytes > found->first + found->second.bytes) return CUDA_ERROR_INVALID_VALUE;
    if (found->second.context != context) side->pid = found->second.context->executor();
    return CUDA_SUCCESS;
  }
  std::uint64_t base = 0;
  const HostBlock* block = find_host(address, &base);
  if (block != nullptr && address + bytes <= base + block->bytes) {
    if (block->mapped_at != 0)
      side->shift = static_cast<std::int64_t>(block->mapped_at - base);
    else if (block->fd < 0)
      side->pid = ::getpid();
    return CUDA_SUCCESS;
  }
  if (address >= kHostBase && address < kHostBase + kHostBytes) return CUDA_ERROR_INVALID_VALUE;
  side->pid = ::getpid();
  side->pageable = true;
  return CUDA_SUCCESS;
}

}  // namespace cudasim
