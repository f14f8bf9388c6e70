// SPDX-License-Identifier: Apache-2.0
// One software device as all processes of the machine see it: a file in the state folder. The driver library,
// the executors, the NVML library and cudasim-ctl map the file. The file stores the memory in use by each
// process, the existing contexts, the injected faults and the past Xids.
//
// The holders of memory are not counted, since the kernel knows them. Every open description of an
// allocation's memfd, in an executor or exported, carries an open-file-description lock. The kernel drops the
// lock with the last descriptor and mapping, also when a process is killed. So no memory can leak or count
// twice: an entry is free when its inode has no lock left (/proc/locks). Reading the list of locks takes
// milliseconds, so an entry also names one context that holds its memory. The list is read only for entries
// whose named holder no longer exists. A context is alive while its executor holds the lock of its byte.
//
// Threads and processes: all may call every method at once (a robust process-shared mutex inside). Errors:
// open() returns nothing and sets errno; the other methods report failures only by their results.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/simulators/cudasim/card/settings.h"

namespace cudasim {

inline constexpr int kMaxContexts = 256;
inline constexpr int kMaxMemoryEntries = 32768;
inline constexpr int kXidRing = 64;

struct XidEvent {
  std::uint64_t code;
  std::int64_t pid;  // 0: no specific process
};

struct MemoryEntry {
  std::uint64_t device;  // st_dev and st_ino of the memfd; inode 0: the entry is free
  std::uint64_t inode;
  std::uint64_t bytes;
  std::int32_t pid;  // the program that created the memory
  std::uint32_t exportable;
  std::int32_t holder;  // a context of this card that holds the memory; -1: other processes may hold it
  std::uint32_t holder_generation;
};

struct ContextEntry {
  std::int32_t used;
  std::int32_t program;
  std::int32_t executor;
  std::int32_t injected_error;  // a CUresult that the executor makes sticky
  std::uint32_t generation;     // distinguishes contexts that use the same slot
};

struct EccCounters {
  std::atomic<std::uint64_t> corrected;
  std::atomic<std::uint64_t> uncorrected;
};

struct CardState {
  std::uint64_t magic;
  std::int32_t index;
  pthread_mutex_t mutex;
  std::uint64_t configured_memory;
  std::uint64_t limit;
  std::uint64_t used;
  std::atomic<std::uint32_t> change;  // futex; increases with each Xid, loss and injected error
  std::atomic<std::uint32_t> lost;
  std::atomic<std::uint32_t> latency_us;
  std::atomic<std::uint32_t> fail_copy;  // number of copies until a copy fails; 0: none
  std::atomic<std::uint32_t> recovery_action;
  std::atomic<std::uint32_t> remap_pending;
  std::atomic<std::uint32_t> remap_failed;
  std::atomic<std::uint32_t> hung;  // nonzero: kernels, copies and memory sets do not end
  std::atomic<std::uint32_t>
      wedge_on_kill;  // the card hangs when a program with a restored context is killed
  std::atomic<std::uint32_t> remapped_corrected;  // number of remapped rows
  std::atomic<std::uint32_t> remapped_uncorrected;
  EccCounters ecc_volatile;   // errors since the driver was loaded
  EccCounters ecc_aggregate;  // errors during the card's whole life
  std::uint64_t xid_count;
  XidEvent xids[kXidRing];
  ContextEntry contexts[kMaxContexts];
  std::uint32_t memory_high;  // no entry at or above this index is in use
  MemoryEntry memory[kMaxMemoryEntries];
};

struct ProcessUse {
  pid_t pid;
  std::uint64_t bytes;
};

class Card {
 public:
  // Opens the card of device `index`, and creates folder and file at first use. A card without users adopts a
  // changed CUDASIM_MEMORY.
  static std::unique_ptr<Card> open(const std::string& dir, int index, std::uint64_t memory);
  // Opens an existing card, for tools. This function creates and changes nothing.
  static std::unique_ptr<Card> open_existing(const std::string& dir, int index);
  ~Card();
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  // Counts memory of the memfd `fd`, which already carries its lock. Sweeps first if the memory does not fit.
  // Returns the entry, or -1 when the device is full.
  int add_memory(int fd, std::uint64_t bytes, pid_t program, bool exportable);
  // Returns the entry of an exported descriptor, or -1 if the descriptor does not belong to this card.
  int find_memory(int fd, std::uint64_t* bytes, bool* exportable);
  // Records that this process's context has taken its own lock on the memory of the entry.
  void memory_taken(int entry);
  // Frees the entry if the caller was its last holder. Call this after the holder has released the memory.
  // `probe` is a descriptor of the memfd without its own lock.
  void memory_let_go(int entry, int probe);
  struct Memory {
    std::uint64_t total;
    std::uint64_t used;
  };
  Memory memory();  // sweeps first
  std::vector<ProcessUse> processes();
  // Returns the contexts whose executors are alive.
  std::vector<ContextEntry> contexts();

  // Registers a context whose executor is this process. Returns -1 when there are too many contexts.
  int add_context(pid_t program);
  void remove_context(int slot);

  void raise_xid(std::uint64_t code, pid_t pid);
  // Returns the Xids from number `from` on. Numbers count from 0, and at most the last kXidRing Xids are
  // stored.
  std::vector<XidEvent> xids_since(std::uint64_t from);
  std::uint64_t xid_count();
  // Makes an error sticky in every context of program `pid`. Returns the number of contexts.
  int inject_error(pid_t pid, int result);
  void set_limit(std::uint64_t bytes);
  void notify();
  void reset_faults();

  CardState& state() { return *state_; }
  [[nodiscard]] int index() const { return state_->index; }

 private:
  Card(int fd, CardState* state) : fd_(fd), state_(state) {}
  void lock();
  void unlock() { pthread_mutex_unlock(&state_->mutex); }
  bool context_alive(int slot);
  bool holder_alive(const MemoryEntry& entry);
  void sweep_locked();
  void forget_locked(int entry);
  bool idle_locked();

  friend class CardLock;
  int fd_;
  CardState* state_;
  int own_slot_ = -1;  // the slot of the context that add_context registered
};

// Locks an open description of a memfd, which marks the memory as held. Returns false if the kernel refuses.
bool hold_memory(int fd);
// Opens a second, independent description of the same memfd, without a lock. Returns -1 with errno on
// failure.
int reopen_memory(int fd);

}  // namespace cudasim
