// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include "tests/simulators/cudasim/driver/api.h"
#include "tests/simulators/cudasim/driver/capture.h"
#include "tests/simulators/cudasim/driver/pool.h"
#include "tests/simulators/cudasim/driver/work.h"

namespace cudasim {
namespace {

constexpr std::uint64_t kUnit = 512;

struct Pools {
  std::map<int, std::unique_ptr<Pool>> standard;  // default pools by device ordinal
  std::map<int, Pool*> chosen;
  std::map<Pool*, std::unique_ptr<Pool>> made;
  std::vector<std::unique_ptr<Pool>> dying;  // destroyed pools with memory in use
};

Pools& pools() {
  static auto* all = new Pools;
  return *all;
}

using Lock = std::lock_guard<std::recursive_mutex>;

template <typename Visit>
void for_each_pool(const Visit& visit) {
  for (auto& [ordinal, pool] : pools().standard) visit(pool.get());
  for (auto& [key, pool] : pools().made) visit(pool.get());
  for (auto& pool : pools().dying) visit(pool.get());
}

Pool* standard_pool(int ordinal) {
  std::unique_ptr<Pool>& pool = pools().standard[ordinal];
  if (pool == nullptr) pool = std::make_unique<Pool>(ordinal, 0);
  return pool.get();
}

Pool* chosen_pool(int ordinal) {
  const auto found = pools().chosen.find(ordinal);
  return found != pools().chosen.end() ? found->second : standard_pool(ordinal);
}

CUresult enter_pool(CUmemoryPool handle, Pool** pool) {
  CUDASIM_TRY(Process::get().ready());
  *pool = reinterpret_cast<Pool*>(handle);
  if (pools().made.count(*pool) > 0) return CUDA_SUCCESS;
  for (const auto& [ordinal, standard] : pools().standard) {
    if (standard.get() == *pool) return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUmemoryPool to_handle(Pool* pool) {
  return reinterpret_cast<CUmemoryPool>(pool);
}

// Marks the place of a free in its stream with a command that does nothing.
CUresult mark(Context* context, Stream* stream, std::uint64_t* sequence) {
  WaitCommand command{{0, Command::kWait, 0}, static_cast<std::uint64_t>(stream->slot), 0};
  return context->submit(stream, &command, sizeof command, nullptr, 0, sequence);
}

CUresult allocate_async(CUdeviceptr* out, std::size_t bytes, Pool* pool, CUstream handle) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_CHECK(out != nullptr && bytes > 0, CUDA_ERROR_INVALID_VALUE);
  std::uint64_t address = 0;
  if (stream->capture != nullptr) {
    CUDASIM_TRY(allocate_in(context, bytes, &address));
    const CUresult captured = capture_work(stream, AllocateWork{address, bytes});
    if (captured != CUDA_SUCCESS) {
      Exclusive lock(Process::get().lock);
      Memory::get().free_block(address);
      return captured;
    }
    *out = address;
    return CUDA_SUCCESS;
  }
  Lock lock(pools_lock());
  if (pool == nullptr) pool = chosen_pool(context->ordinal());
  CUDASIM_CHECK(pool->ordinal() == context->ordinal(), CUDA_ERROR_INVALID_VALUE);
  CUDASIM_TRY(pool->allocate(context, stream, bytes, &address));
  *out = address;
  return CUDA_SUCCESS;
}

CUresult free_async(CUdeviceptr address, CUstream handle) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  if (address == 0) return CUDA_SUCCESS;
  if (stream->capture != nullptr) return capture_work(stream, FreeWork{address});
  Lock lock(pools_lock());
  Pool* owner = nullptr;
  for_each_pool([&](Pool* pool) {
    if (pool->has(address)) owner = pool;
  });
  if (owner == nullptr) {
    // Memory of a graph is freed like memory of a pool.
    CUDASIM_CHECK(is_graph_memory(address), CUDA_ERROR_INVALID_VALUE);
    CUDASIM_TRY(context->synchronize(stream));
    forget_graph_memory(address);
    Exclusive memory(Process::get().lock);
    return Memory::get().free_block(address);
  }
  std::uint64_t sequence = 0;
  CUDASIM_TRY(mark(context, stream, &sequence));
  owner->free_after(address, context, stream->slot, sequence);
  return CUDA_SUCCESS;
}

CUresult check_properties(const CUmemPoolProps* properties) {
  CUDASIM_CHECK(properties != nullptr && properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED,
                CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
  CUDASIM_CHECK(Process::get().valid_device(properties->location.id), CUDA_ERROR_INVALID_DEVICE);
  CUDASIM_CHECK(properties->handleTypes == CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_NOT_SUPPORTED);
  return CUDA_SUCCESS;
}

}  // namespace

std::recursive_mutex& pools_lock() {
  // The lock is initialized at compile time. ThreadSanitizer could not observe how threads agree on the lazy
  // creation of a lock.
  static constinit std::recursive_mutex lock;
  return lock;
}

void sweep_pools() {
  Lock lock(pools_lock());
  for_each_pool([](Pool* pool) { pool->sweep(); });
  std::erase_if(pools().dying, [](const std::unique_ptr<Pool>& pool) { return pool->empty(); });
}

bool shrink_pools() {
  Lock lock(pools_lock());
  bool any = false;
  for_each_pool([&any](Pool* pool) {
    std::uint64_t before = 0;
    std::uint64_t after = 0;
    pool->get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &before);
    pool->trim(0);
    pool->get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &after);
    any = any || after < before;
  });
  return any;
}

void forget_in_pools(std::uint64_t address) {
  Lock lock(pools_lock());
  for_each_pool([address](Pool* pool) { pool->forget(address); });
}

void Pool::count(std::int64_t reserved, std::int64_t used) {
  reserved_ += static_cast<std::uint64_t>(reserved);
  used_ += static_cast<std::uint64_t>(used);
  reserved_high_ = std::max(reserved_high_, reserved_);
  used_high_ = std::max(used_high_, used_);
}

bool Pool::reuse(Context* context, int slot, std::uint64_t bytes, std::uint64_t* address) {
  for (auto free = free_.begin(); free != free_.end(); ++free) {
    const bool fits = free->block.bytes >= bytes && free->block.bytes <= 2 * bytes;
    if (!fits || free->block.context != context || (free->slot != slot && !done(*free))) continue;
    *address = free->address;
    live_[free->address] = free->block;
    count(0, static_cast<std::int64_t>(free->block.bytes));
    free_.erase(free);
    return true;
  }
  return false;
}

CUresult Pool::allocate(Context* context, Stream* stream, std::uint64_t bytes, std::uint64_t* address) {
  forget_dead();
  bytes = (bytes + kUnit - 1) / kUnit * kUnit;
  if (reuse(context, stream->slot, bytes, address)) return CUDA_SUCCESS;
  if (limit_ != 0 && reserved_ + bytes > limit_) trim(0);
  CUDASIM_CHECK(limit_ == 0 || reserved_ + bytes <= limit_, CUDA_ERROR_OUT_OF_MEMORY);
  CUDASIM_TRY(allocate_in(context, bytes, address));
  live_[*address] = {bytes, context};
  count(static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(bytes));
  return CUDA_SUCCESS;
}

void Pool::free_after(std::uint64_t address, Context* context, int slot, std::uint64_t sequence) {
  const auto found = live_.find(address);
  count(0, -static_cast<std::int64_t>(found->second.bytes));
  // The stream belongs to another context: wait until it has completed the free.
  if (found->second.context != context) context->wait(slot, sequence);
  free_.push_back({address, found->second, found->second.context == context ? slot : 0,
                   found->second.context == context ? sequence : 0});
  live_.erase(found);
}

void Pool::forget(std::uint64_t address) {
  const auto found = live_.find(address);
  if (found == live_.end()) return;
  const auto bytes = static_cast<std::int64_t>(found->second.bytes);
  count(-bytes, -bytes);
  live_.erase(found);
}

bool Pool::has(std::uint64_t address) {
  forget_dead();
  return live_.count(address) > 0;
}

void Pool::forget_dead() {
  std::vector<std::uint64_t> gone;
  for (const auto& [address, block] : live_) {
    if (!block.context->alive()) gone.push_back(address);
  }
  for (const std::uint64_t address : gone) forget(address);
  std::erase_if(free_, [this](const Free& free) {
    if (free.block.context->alive()) return false;
    count(-static_cast<std::int64_t>(free.block.bytes), 0);
    return true;
  });
}

void Pool::trim(std::uint64_t keep) {
  forget_dead();
  for (std::size_t i = 0; i < free_.size() && reserved_ > keep;) {
    if (!done(free_[i])) {
      i++;
      continue;
    }
    const Free free = free_[i];
    free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
    count(-static_cast<std::int64_t>(free.block.bytes), 0);
    Exclusive lock(Process::get().lock);
    Memory::get().free_block(free.address);
  }
}

CUresult Pool::get(CUmemPool_attribute attribute, void* value) {
  forget_dead();
  auto* number = static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int*>(value) = reuse_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *number = threshold_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *number = reserved_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *number = reserved_high_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *number = used_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *number = used_high_;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Pool::set(CUmemPool_attribute attribute, const void* value) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      reuse_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] =
          *static_cast<const int*>(value) != 0 ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      threshold_ = *static_cast<const cuuint64_t*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      CUDASIM_CHECK(*static_cast<const cuuint64_t*>(value) == 0, CUDA_ERROR_INVALID_VALUE);
      (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? used_high_ : reserved_high_) =
          attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? used_ : reserved_;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace cudasim

namespace cudasim::api {

CUresult cuMemAllocAsync(CUdeviceptr* address, std::size_t bytes, CUstream stream) {
  return allocate_async(address, bytes, nullptr, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, std::size_t bytes, CUmemoryPool handle,
                                 CUstream stream) {
  Lock lock(pools_lock());
  Pool* pool = nullptr;
  CUDASIM_TRY(enter_pool(handle, &pool));
  return allocate_async(address, bytes, pool, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return free_async(address, stream);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(Process::get().valid_device(device), CUDA_ERROR_INVALID_DEVICE);
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  Lock lock(pools_lock());
  *out = to_handle(standard_pool(device));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(Process::get().valid_device(device), CUDA_ERROR_INVALID_DEVICE);
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  Lock lock(pools_lock());
  *out = to_handle(chosen_pool(device));
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  Lock lock(pools_lock());
  Pool* pool = nullptr;
  CUDASIM_TRY(enter_pool(handle, &pool));
  CUDASIM_CHECK(Process::get().valid_device(device), CUDA_ERROR_INVALID_DEVICE);
  CUDASIM_CHECK(pool->ordinal() == device, CUDA_ERROR_INVALID_VALUE);
  pools().chosen[device] = pool;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_TRY(check_properties(properties));
  Lock lock(pools_lock());
  auto pool = std::make_unique<Pool>(properties->location.id, properties->maxSize);
  *out = to_handle(pool.get());
  pools().made.emplace(pool.get(), std::move(pool));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  Lock lock(pools_lock());
  Pool* pool = nullptr;
  CUDASIM_TRY(enter_pool(handle, &pool));
  const auto found = pools().made.find(pool);
  // The device's default pool cannot be destroyed.
  CUDASIM_CHECK(found != pools().made.end(), CUDA_ERROR_INVALID_VALUE);
  std::erase_if(pools().chosen, [pool](const auto& item) { return item.second == pool; });
  pool->trim(0);
  pools().dying.push_back(std::move(found->second));
  pools().made.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, std::size_t keep) {
  Lock lock(pools_lock());
  Pool* pool = nullptr;
  CUDASIM_TRY(enter_pool(handle, &pool));
  pool->trim(keep);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Lock lock(pools_lock());
  Pool* pool = nullptr;
  CUDASIM_TRY(enter_pool(handle, &pool));
  CUDASIM_CHECK(value != nullptr, CUDA_ERROR_INVALID_VALUE);
  return pool->get(attribute, value);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Lock lock(pools_lock());
  Pool* pool = nullptr;
  CUDASIM_TRY(enter_pool(handle, &pool));
  CUDASIM_CHECK(value != nullptr, CUDA_ERROR_INVALID_VALUE);
  return pool->set(attribute, value);
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  Lock lock(pools_lock());
  Pool* pool = nullptr;
  CUDASIM_TRY(enter_pool(handle, &pool));
  CUDASIM_CHECK(flags != nullptr && location != nullptr && location->type == CU_MEM_LOCATION_TYPE_DEVICE,
                CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(Process::get().valid_device(location->id), CUDA_ERROR_INVALID_DEVICE);
  *flags =
      location->id == pool->ordinal() ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access, std::size_t count) {
  Lock lock(pools_lock());
  Pool* pool = nullptr;
  CUDASIM_TRY(enter_pool(handle, &pool));
  CUDASIM_CHECK(count == 0 || access != nullptr, CUDA_ERROR_INVALID_VALUE);
  for (std::size_t i = 0; i < count; i++) {
    CUDASIM_CHECK(access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE);
    CUDASIM_CHECK(Process::get().valid_device(access[i].location.id), CUDA_ERROR_INVALID_DEVICE);
    const bool own = access[i].location.id == pool->ordinal();
    CUDASIM_CHECK(!own || access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_INVALID_VALUE);
    CUDASIM_CHECK(own || access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE, CUDA_ERROR_NOT_SUPPORTED);
  }
  return CUDA_SUCCESS;
}

}  // namespace cudasim::api
