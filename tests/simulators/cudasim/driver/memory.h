// SPDX-License-Identifier: Apache-2.0
// The program's device memory: physical allocations, reserved addresses, mappings, cuMemAlloc on top of them,
// and pinned host memory. All rules of the virtual memory API are checked here; executors only obey orders.
//
// Threads: the caller holds Process::lock, shared for the const methods, exclusively for the rest. Errors:
// CUresult.
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
  Context* owner = nullptr;  // null: its context is gone and the memory with it
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
  CUmemAllocationProp properties{};
  bool exportable = false;
  bool plain = false;  // made by cuMemAlloc: has no handle that the program could get
  bool imported = false;
  unsigned char* saved = nullptr;  // its content while the process is checkpointed
  unsigned handles = 0;
  unsigned mappings = 0;
  std::map<Context*, std::uint64_t> attached;  // its id in peers' executors
};

struct Mapping {
  std::uint64_t address = 0;
  std::shared_ptr<Physical> physical;
  CUmemGenericAllocationHandle handle = 0;
  std::map<int, CUmemAccess_flags> access;  // by ordinal
  std::map<Context*, bool> live;            // mapped in these executors; writable
  Context* only = nullptr;                  // made by cuMemAlloc in this context
};

// A cuMemAlloc: all of a mapping, or a piece of a slab.
struct Block {
  std::uint64_t bytes;
  std::uint64_t mapping;
};

inline constexpr int kRegistered = -1;
inline constexpr int kPrivateBacking = -2;  // while the process is checkpointed
struct HostBlock {
  std::uint64_t bytes = 0;
  unsigned flags = 0;
  int fd = kRegistered;  // that: memory of the program
  // Registered memory of a file: executors have it mapped, at this address, from this descriptor.
  std::uint64_t mapped_at = 0;
  int file = -1;
};

// How an executor reaches the bytes of a copy.
struct Side {
  pid_t pid = 0;           // 0: in its own address space
  std::int64_t shift = 0;  // there it lies at so many bytes more than here
  bool pageable = false;   // neither pinned nor registered
};

class Memory {
 public:
  static Memory& get();

  // Physical memory.
  static CUresult create(Context* owner, std::uint64_t bytes, const CUmemAllocationProp& properties,
                         bool plain, std::shared_ptr<Physical>* out);
  CUmemGenericAllocationHandle add_handle(const std::shared_ptr<Physical>& physical);
  std::shared_ptr<Physical> find_handle(CUmemGenericAllocationHandle handle) const;
  CUresult release_handle(CUmemGenericAllocationHandle handle);
  CUresult retain(std::uint64_t address, CUmemGenericAllocationHandle* handle);
  CUresult share(const std::shared_ptr<Physical>& physical, int* fd);
  CUresult import(Context* owner, int fd, std::shared_ptr<Physical>* out);
  void refuse_imports() { imports_refused_ = true; }  // from now on
  // The same of memory that is not exportable (legacy IPC).
  CUresult attach(Context* owner, int fd, std::shared_ptr<Physical>* out);

  // Addresses and mappings.
  CUresult reserve(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t hint, std::uint64_t* address);
  CUresult unreserve(std::uint64_t address, std::uint64_t bytes);
  CUresult map(std::uint64_t address, std::uint64_t bytes, CUmemGenericAllocationHandle handle);
  CUresult unmap(std::uint64_t address, std::uint64_t bytes);
  CUresult set_access(std::uint64_t address, std::uint64_t bytes, int ordinal, CUmemAccess_flags flags);
  const Mapping* find_mapping(std::uint64_t address) const;

  // cuMemAlloc. Large blocks come with memory from prepare(), which is called without the lock: filling it
  // takes a while.
  static CUresult prepare(Context* context, std::uint64_t bytes, std::shared_ptr<Physical>* out);
  CUresult allocate(Context* context, std::uint64_t bytes, const std::shared_ptr<Physical>& prepared,
                    std::uint64_t* address);
  CUresult free_block(std::uint64_t address);
  // The block or mapping around an address; false if there is none.
  bool range_of(std::uint64_t address, std::uint64_t* base, std::uint64_t* bytes) const;
  CUresult enable_peer(Context* user, Context* peer);
  CUresult disable_peer(Context* user, Context* peer);
  // The context whose memory this is, or null.
  Context* context_of(std::uint64_t address) const;

  // Host memory.
  CUresult allocate_host(std::uint64_t bytes, unsigned flags, std::uint64_t* address);
  CUresult free_host(std::uint64_t address);
  CUresult register_host(std::uint64_t address, std::uint64_t bytes, unsigned flags);
  CUresult unregister_host(std::uint64_t address);
  const HostBlock* find_host(std::uint64_t address, std::uint64_t* base) const;

  void add_global(Context* context, std::uint64_t address, std::uint64_t bytes);
  void remove_global(std::uint64_t address);

  // How the executor of `context` reaches these bytes; an error if they are no memory that it may use.
  CUresult resolve(Context* context, std::uint64_t address, std::uint64_t bytes, bool write,
                   Side* side) const;
  static bool is_device_address(std::uint64_t address) {
    return (address >= kDeviceBase && address < kDeviceBase + kDeviceBytes) ||
           (address >= kGlobalBase && address < kGlobalBase + kGlobalBytes);
  }

  // A context begins: its executor gets the mappings it has access to. A context ends.
  CUresult join(Context* context);
  void leave(Context* context);

  // While the process is checkpointed (checkpoint_memory.cc).
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
  // Within one reservation, and nothing mapped there.
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
  std::map<Context*, std::vector<Context*>> peers_;  // contexts that may use a context's memory
};

// cuMemAlloc in a context, without Process::lock. Pools give back what they keep if memory is short.
CUresult allocate_in(Context* context, std::uint64_t bytes, std::uint64_t* address);

}  // namespace cudasim
