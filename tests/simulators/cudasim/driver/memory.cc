// SPDX-License-Identifier: Apache-2.0
// Physical memory, addresses and mappings. memory_blocks.cc implements the blocks on top of them.
#include "tests/simulators/cudasim/driver/memory.h"

#include <unistd.h>

#include <algorithm>

#include "tests/simulators/cudasim/driver/graph.h"
#include "tests/simulators/cudasim/driver/process.h"

namespace cudasim {

Memory& Memory::get() {
  static auto* memory = new Memory;
  return *memory;
}

CUresult Memory::create(Context* owner, std::uint64_t bytes, const CUmemAllocationProp& properties,
                        bool plain, std::shared_ptr<Physical>* out) {
  const bool exportable = (properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
  ReplyMessage reply{};
  const CUresult result = owner->call({Request::kMemoryCreate, {bytes, exportable ? 1U : 0U}}, &reply);
  if (result != CUDA_SUCCESS) return result;
  auto physical = std::make_shared<Physical>();
  physical->owner = owner;
  physical->id = reply.a[0];
  physical->bytes = bytes;
  physical->properties = properties;
  physical->exportable = exportable;
  physical->plain = plain;
  *out = std::move(physical);
  return CUDA_SUCCESS;
}

CUmemGenericAllocationHandle Memory::add_handle(const std::shared_ptr<Physical>& physical) {
  const CUmemGenericAllocationHandle handle = next_handle_++;
  handles_[handle] = physical;
  physical->handles++;
  return handle;
}

std::shared_ptr<Physical> Memory::find_handle(CUmemGenericAllocationHandle handle) const {
  const auto found = handles_.find(handle);
  return found != handles_.end() ? found->second : nullptr;
}

CUresult Memory::release_handle(CUmemGenericAllocationHandle handle) {
  const std::shared_ptr<Physical> physical = find_handle(handle);
  if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  physical->handles--;
  // A handle may have been retained several times. The last release removes the handle.
  if (physical->handles == 0) handles_.erase(handle);
  drop_if_unused(physical);
  return CUDA_SUCCESS;
}

CUresult Memory::retain(std::uint64_t address, CUmemGenericAllocationHandle* handle) {
  const Mapping* mapping = find_mapping(address);
  if (mapping == nullptr || mapping->physical->plain) return CUDA_ERROR_INVALID_VALUE;
  // A mapping retains its handle, even if the handle was released meanwhile.
  handles_[mapping->handle] = mapping->physical;
  mapping->physical->handles++;
  *handle = mapping->handle;
  return CUDA_SUCCESS;
}

void Memory::drop_if_unused(const std::shared_ptr<Physical>& physical) {
  if (physical->handles > 0 || physical->mappings > 0) return;
  for (const auto& [context, id] : physical->attached) context->call({Request::kMemoryDrop, {id}});
  physical->attached.clear();
  if (physical->owner != nullptr) physical->owner->call({Request::kMemoryDrop, {physical->id}});
  physical->owner = nullptr;
}

CUresult Memory::share(const std::shared_ptr<Physical>& physical, int* fd) {
  if (physical->owner == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ReplyMessage reply{};
  return physical->owner->call({Request::kMemoryExport, {physical->id}}, -1, &reply, fd);
}

CUresult Memory::import(Context* owner, int fd, std::shared_ptr<Physical>* out) {
  if (imports_refused_) return CUDA_ERROR_NOT_SUPPORTED;
  return take(Request::kMemoryImport, owner, fd, out);
}

CUresult Memory::attach(Context* owner, int fd, std::shared_ptr<Physical>* out) {
  return take(Request::kMemoryAttach, owner, fd, out);
}

CUresult Memory::take(Request request, Context* owner, int fd, std::shared_ptr<Physical>* out) {
  ReplyMessage reply{};
  const CUresult result = owner->call({request}, fd, &reply, nullptr);
  if (result != CUDA_SUCCESS) return result;
  const int ordinal = Process::get().ordinal_of(static_cast<int>(reply.a[2]));
  if (ordinal < 0) {
    owner->call({Request::kMemoryDrop, {reply.a[0]}});
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto physical = std::make_shared<Physical>();
  physical->owner = owner;
  physical->id = reply.a[0];
  physical->bytes = reply.a[1];
  physical->imported = true;
  physical->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  physical->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  *out = std::move(physical);
  return CUDA_SUCCESS;
}

CUresult Memory::reserve(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t hint,
                         std::uint64_t* address) {
  if (bytes == 0 || bytes % kGranularity != 0 || (alignment & (alignment - 1)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  alignment = std::max(alignment, kGranularity);
  std::uint64_t at = 0;
  if (hint != 0 && hint % alignment == 0 && device_addresses_.take_at(hint, bytes)) at = hint;
  if (at == 0) at = device_addresses_.take(bytes, alignment);
  if (at == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  reservations_[at] = bytes;
  *address = at;
  return CUDA_SUCCESS;
}

CUresult Memory::unreserve(std::uint64_t address, std::uint64_t bytes) {
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto mapped = mappings_.lower_bound(address);
  if (mapped != mappings_.end() && mapped->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  device_addresses_.give(address, bytes);
  reservations_.erase(found);
  return CUDA_SUCCESS;
}

CUresult Memory::map(std::uint64_t address, std::uint64_t bytes, CUmemGenericAllocationHandle handle) {
  const std::shared_ptr<Physical> physical = find_handle(handle);
  if (physical == nullptr || physical->owner == nullptr || bytes != physical->bytes ||
      address % kGranularity != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!reserved_and_free(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  Mapping& mapping = mappings_[address];
  mapping.address = address;
  mapping.physical = physical;
  mapping.handle = handle;
  physical->mappings++;
  return CUDA_SUCCESS;
}

// Returns whether the range is within one reservation and has no mappings.
bool Memory::reserved_and_free(std::uint64_t address, std::uint64_t bytes) const {
  auto reserved = reservations_.upper_bound(address);
  if (reserved == reservations_.begin()) return false;
  reserved = std::prev(reserved);
  if (address + bytes > reserved->first + reserved->second) return false;
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first < address + bytes) return false;
  return find_mapping(address) == nullptr;
}

CUresult Memory::mappings_in(std::uint64_t address, std::uint64_t bytes,
                             std::vector<std::uint64_t>* out) const {
  std::uint64_t at = address;
  while (at < address + bytes) {
    const auto found = mappings_.find(at);
    if (found == mappings_.end() || found->second.physical->plain) return CUDA_ERROR_INVALID_VALUE;
    out->push_back(at);
    at += found->second.physical->bytes;
  }
  return bytes > 0 && at == address + bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void Memory::erase_mapping(std::map<std::uint64_t, Mapping>::iterator found) {
  Mapping& mapping = found->second;
  while (!mapping.live.empty()) end_live(&mapping, mapping.live.begin()->first);
  const std::shared_ptr<Physical> physical = mapping.physical;
  mappings_.erase(found);
  physical->mappings--;
  drop_if_unused(physical);
}

CUresult Memory::unmap(std::uint64_t address, std::uint64_t bytes) {
  // As in the driver, a range without mappings is not an error.
  if (bytes > 0 && reserved_and_free(address, bytes)) return CUDA_SUCCESS;
  std::vector<std::uint64_t> whole;
  const CUresult result = mappings_in(address, bytes, &whole);
  if (result != CUDA_SUCCESS) return result;
  for (const std::uint64_t at : whole) erase_mapping(mappings_.find(at));
  return CUDA_SUCCESS;
}

CUresult Memory::make_live(Mapping* mapping, Context* context, bool writable) {
  const auto live = mapping->live.find(context);
  if (live != mapping->live.end() && live->second == writable) return CUDA_SUCCESS;
  Physical& physical = *mapping->physical;
  if (physical.owner == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t id = physical.id;
  if (physical.owner != context) {
    const auto attached = physical.attached.find(context);
    if (attached == physical.attached.end()) {
      int fd = -1;
      CUresult result = share(mapping->physical, &fd);
      ReplyMessage reply{};
      if (result == CUDA_SUCCESS) result = context->call({Request::kMemoryAttach}, fd, &reply, nullptr);
      if (fd >= 0) ::close(fd);
      if (result != CUDA_SUCCESS) return result;
      physical.attached[context] = reply.a[0];
    }
    id = physical.attached[context];
  }
  const CUresult result = context->call({Request::kMap, {id, mapping->address, writable ? 1U : 0U}});
  if (result == CUDA_SUCCESS) mapping->live[context] = writable;
  return result;
}

void Memory::end_live(Mapping* mapping, Context* context) {
  if (mapping->live.erase(context) == 0) return;
  context->call({Request::kUnmap, {mapping->address, mapping->physical->bytes}});
}

CUresult Memory::set_access(std::uint64_t address, std::uint64_t bytes, int ordinal,
                            CUmemAccess_flags flags) {
  std::vector<std::uint64_t> whole;
  const CUresult covered = mappings_in(address, bytes, &whole);
  if (covered != CUDA_SUCCESS) return covered;
  for (const std::uint64_t at : whole) {
    Mapping& mapping = mappings_[at];
    mapping.access[ordinal] = flags;
    for (Context* context : Process::get().contexts) {
      if (context->ordinal() != ordinal) continue;
      if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        end_live(&mapping, context);
        continue;
      }
      const CUresult result = make_live(&mapping, context, flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  return CUDA_SUCCESS;
}

const Mapping* Memory::find_mapping(std::uint64_t address) const {
  auto found = mappings_.upper_bound(address);
  if (found == mappings_.begin()) return nullptr;
  found = std::prev(found);
  return address < found->first + found->second.physical->bytes ? &found->second : nullptr;
}

CUresult Memory::join(Context* context) {
  for (auto& [address, mapping] : mappings_) {
    const auto access = mapping.access.find(context->ordinal());
    if (access == mapping.access.end() || access->second == CU_MEM_ACCESS_FLAGS_PROT_NONE) continue;
    const CUresult result =
        make_live(&mapping, context, access->second == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE) return result;
  }
  for (const auto& [address, block] : host_) {
    const bool registered = block.mapped_at != 0;
    if (block.fd < 0 && !registered) continue;
    const CUresult result =
        context->call({Request::kHostMap, {registered ? block.mapped_at : address, block.bytes}},
                      registered ? block.file : block.fd, nullptr, nullptr);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// Frees the memory that only this context's executor holds: its cuMemAlloc memory, and its physical memory
// that no other executor uses.
void Memory::leave(Context* context) {
  const auto forget = [context](Physical& physical) {
    physical.attached.erase(context);
    if (physical.owner != context) return;
    physical.owner = nullptr;
    if (physical.plain || physical.attached.empty()) return;
    const auto heir = physical.attached.begin();
    physical.owner = heir->first;
    physical.id = heir->second;
    physical.attached.erase(heir);
  };
  for (auto& [handle, physical] : handles_) forget(*physical);
  for (auto found = mappings_.begin(); found != mappings_.end();) {
    Mapping& mapping = found->second;
    forget(*mapping.physical);
    mapping.live.erase(context);
    if (mapping.physical->owner == nullptr) {
      while (!mapping.live.empty()) end_live(&mapping, mapping.live.begin()->first);
    }
    const bool gone = mapping.only == context;
    if (gone) {
      for (const auto& [peer, id] : mapping.physical->attached) peer->call({Request::kMemoryDrop, {id}});
      slabs_.erase(found->first);
      device_addresses_.give(mapping.address, mapping.physical->bytes);
    }
    found = gone ? mappings_.erase(found) : std::next(found);
  }
  std::erase_if(blocks_, [this](const auto& item) {
    const bool gone = mappings_.count(item.second.mapping) == 0;
    if (gone) forget_graph_memory(item.first);
    return gone;
  });
  std::erase_if(globals_, [context](const auto& item) { return item.second.context == context; });
  peers_.erase(context);
  for (auto& [user, used] : peers_) std::erase(used, context);
}

}  // namespace cudasim
