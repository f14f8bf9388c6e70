// SPDX-License-Identifier: Apache-2.0
// The program's device memory: physical allocations, reserved addresses, mappings, cuMemAlloc on top of them,
// and pinned host memory. This code checks all rules of the virtual memory API; executors only obey requests.
//
// Threads: the caller holds Process::lock, shared for the const methods and exclusively for the other
// methods. Errors: CUresult.
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tests/simulators/cudasim/driver/backing/ranges.h"
#include "tests/simulators/cudasim/driver/context.h"
#include "tests/simulators/cudasim/protocol/shared.h"

namespace cudasim {

// Physical memory of one device, held by an executor of this process.
struct Physical {
  Context* owner = nullptr;  // null: the context was destroyed, together with its memory
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
  CUmemAllocationProp properties{};
  bool exportable = false;
  bool plain = false;  // created by cuMemAlloc, so the program cannot get a handle
  bool imported = false;
  unsigned char* saved = nullptr;  // content of the memory while the process is checkpointed
  unsigned handles = 0;
  unsigned mappings = 0;
  std::map<Context*, std::uint64_t> attached;  // id of the memory in each peer's executor
};

struct Mapping {
  std::uint64_t address = 0;
  std::shared_ptr<Physical> physical;
  CUmemGenericAllocationHandle handle = 0;
  std::map<int, CUmemAccess_flags> access;  // access by device ordinal
  std::map<Context*, bool> live;            // executors that map the memory; true: writable
  Context* only = nullptr;  // the only context that uses the memory, which the context's cuMemAlloc created
};

// A cuMemAlloc block: a whole mapping, or a piece of a slab.
struct Block {
  std::uint64_t bytes;
  std::uint64_t mapping;
};

inline constexpr int kRegistered = -1;
inline constexpr int kPrivateBacking = -2;  // used while the process is checkpointed
struct HostBlock {
  std::uint64_t bytes = 0;
  unsigned flags = 0;
  int fd = kRegistered;  // kRegistered: memory of the program
  // Registered memory of a file: executors map it at this address from this descriptor.
  std::uint64_t mapped_at = 0;
  int file = -1;
};

// How an executor reaches the bytes of a copy.
struct Side {
  pid_t pid = 0;           // 0: the bytes are in the executor's own address space
  std::int64_t shift = 0;  // bytes to add to the address here to get the address in process `pid`
  bool pageable = false;   // true if the bytes are neither pinned nor registered
};

class Memory {
 public:
  static Memory& get();

  // Creates physical memory.
  static CUresult create(Context* owner, std::uint64_t bytes, const CUmemAllocationProp& properties,
                         bool plain, std::shared_ptr<Physical>* out);
  CUmemGenericAllocationHandle add_handle(const std::shared_ptr<Physical>& physical);
  std::shared_ptr<Physical> find_handle(CUmemGenericAllocationHandle handle) const;
  CUresult release_handle(CUmemGenericAllocationHandle handle);
  CUresult retain(std::uint64_t address, CUmemGenericAllocationHandle* handle);
  CUresult share(const std::shared_ptr<Physical>& physical, int* fd);
  CUresult import(Context* owner, int fd, std::shared_ptr<Physical>* out);
  void refuse_imports() { imports_refused_ = true; }  // refuses imports from now on
  // Imports memory that is not exportable (legacy IPC).
  CUresult attach(Context* owner, int fd, std::shared_ptr<Physical>* out);

  // Reserves addresses. unreserve() releases the addresses.
  CUresult reserve(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t hint, std::uint64_t* address);
  CUresult unreserve(std::uint64_t address, std::uint64_t bytes);
  CUresult map(std::uint64_t address, std::uint64_t bytes, CUmemGenericAllocationHandle handle);
  CUresult unmap(std::uint64_t address, std::uint64_t bytes);
  CUresult set_access(std::uint64_t address, std::uint64_t bytes, int ordinal, CUmemAccess_flags flags);
  const Mapping* find_mapping(std::uint64_t address) const;

  // Allocates physical memory for a large cuMemAlloc block. Call this without the lock, because filling the
  // memory takes long. allocate() then uses the memory.
  static CUresult prepare(Context* context, std::uint64_t bytes, std::shared_ptr<Physical>* out);
  CUresult allocate(Context* context, std::uint64_t bytes, const std::shared_ptr<Physical>& prepared,
                    std::uint64_t* address);
  CUresult free_block(std::uint64_t address);
  // Finds the block or mapping around an address. Returns false if there is none.
  bool range_of(std::uint64_t address, std::uint64_t* base, std::uint64_t* bytes) const;
  CUresult enable_peer(Context* user, Context* peer);
  CUresult disable_peer(Context* user, Context* peer);
  // Returns the context that owns this memory, or null.
  Context* context_of(std::uint64_t address) const;

  // Allocates host memory. free_host() frees the memory.
  CUresult allocate_host(std::uint64_t bytes, unsigned flags, std::uint64_t* address);
  CUresult free_host(std::uint64_t address);
  CUresult register_host(std::uint64_t address, std::uint64_t bytes, unsigned flags);
  CUresult unregister_host(std::uint64_t address);
  const HostBlock* find_host(std::uint64_t address, std::uint64_t* base) const;

  void add_global(Context* context, std::uint64_t address, std::uint64_t bytes);
  void remove_global(std::uint64_t address);

  // Determines how the executor of `context` reaches these bytes. Returns an error for memory that the
  // executor may not use.
  CUresult resolve(Context* context, std::uint64_t address, std::uint64_t bytes, bool write,
                   Side* side) const;
  static bool is_device_address(std::uint64_t address) {
    return (address >= kDeviceBase && address < kDeviceBase + kDeviceBytes) ||
           (address >= kGlobalBase && address < kGlobalBase + kGlobalBytes);
  }

  // Gives a new context's executor the mappings that the context may access. leave() removes a context that
  // ends.
  CUresult join(Context* context);
  void leave(Context* context);

  // Returns whether imported memory exists. This function and the following ones serve a checkpoint of the
  // process (checkpoint_memory.cc).
  bool has_imports() const;
  CUresult save();
  void forget_saved();
  CUresult restore();

 private:
  struct Slab {
    Ranges free;
    unsigned blocks = 0;
  };
  struct Global {
    Context* context;
    std::uint64_t bytes;
  };
  [[nodiscard]] std::vector<std::shared_ptr<Physical>> all() const;
  bool imports_refused_ = false;
  CUresult share_host();
  void map_registered(std::uint64_t address, HostBlock* block);
  void unmap_registered(HostBlock* block);
  CUresult make_live(Mapping* mapping, Context* context, bool writable);
  void end_live(Mapping* mapping, Context* context);
  CUresult take(Request request, Context* owner, int fd, std::shared_ptr<Physical>* out);
  void drop_if_unused(const std::shared_ptr<Physical>& physical);
  void erase_mapping(std::map<std::uint64_t, Mapping>::iterator found);
  CUresult allocate_mapping(Context* context, const std::shared_ptr<Physical>& physical,
                            std::uint64_t* address);
  CUresult allocate_small(Context* context, std::uint64_t bytes, std::uint64_t* address);
  // Returns whether the range is within one reservation and has no mappings.
  [[nodiscard]] bool reserved_and_free(std::uint64_t address, std::uint64_t bytes) const;
  CUresult mappings_in(std::uint64_t address, std::uint64_t bytes, std::vector<std::uint64_t>* out) const;
  CUresult resolve_device(Context* context, std::uint64_t address, std::uint64_t bytes, bool write,
                          Side* side) const;
  bool inside_block(const Mapping& mapping, std::uint64_t address, std::uint64_t bytes) const;

  Ranges device_addresses_{kDeviceBase, kDeviceBytes};
  Ranges host_addresses_{kHostBase, kHostBytes};
  std::uint64_t next_handle_ = 1;
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<Physical>> handles_;
  std::map<std::uint64_t, std::uint64_t> reservations_;
  std::map<std::uint64_t, Mapping> mappings_;
  std::map<std::uint64_t, Block> blocks_;
  std::map<std::uint64_t, Slab> slabs_;
  std::map<std::uint64_t, HostBlock> host_;
  std::map<std::uint64_t, Global> globals_;
  std::map<Context*, std::vector<Context*>> peers_;  // for each context, the contexts that may use its memory
};

// Runs cuMemAlloc in a context, without Process::lock. Pools return their free memory if memory is short.
CUresult allocate_in(Context* context, std::uint64_t bytes, std::uint64_t* address);

}  // namespace cudasim
