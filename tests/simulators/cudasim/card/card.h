// SPDX-License-Identifier: Apache-2.0
// One software device as all processes of the machine see it: a file in the state folder. The driver library,
// the executors, the NVML library and cudasim-ctl map it. It has the memory in use by each process, which
// contexts exist, what faults are injected and which Xids have happened.
//
// The holders of memory are not counted: the kernel knows them. Every open description of an allocation's
// memfd, in an executor or exported, carries an open-file-description lock. The kernel drops it with the last
// descriptor and mapping, also when a process is killed. So nothing can be leaked or counted twice: an entry
// is free when no lock is left on its inode (/proc/locks). Reading that list costs milliseconds, so an entry
// also names one context that holds it. The list is read only for entries whose named holder is gone. A
// context is alive while its executor holds the lock of its byte.
//
// Threads and processes: every method may be called by all at once (a robust process-shared mutex inside).
// Errors: open() returns nothing and sets errno; the rest cannot fail but by their results.
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
  std::int64_t pid;  // 0: of no process in particular
};

struct MemoryEntry {
  std::uint64_t device;  // st_dev and st_ino of the memfd; inode 0: the entry is free
  std::uint64_t inode;
  std::uint64_t bytes;
  std::int32_t pid;  // the program that created it
  std::uint32_t exportable;
  std::int32_t holder;  // a context of this card that holds it, or -1: others may
  std::uint32_t holder_generation;
};

struct ContextEntry {
  std::int32_t used;
  std::int32_t program;
  std::int32_t executor;
  std::int32_t injected_error;  // a CUresult that the executor makes sticky
  std::uint32_t generation;     // tells contexts in the same slot apart
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
  std::atomic<std::uint32_t> change;  // futex: grows with each Xid, loss and injected error
  std::atomic<std::uint32_t> lost;
  std::atomic<std::uint32_t> latency_us;
  std::atomic<std::uint32_t> fail_copy;  // counts down to the copy that fails; 0: none
  std::atomic<std::uint32_t> recovery_action;
  std::atomic<std::uint32_t> remap_pending;
  std::atomic<std::uint32_t> remap_failed;
  std::atomic<std::uint32_t> hung;  // kernels, copies and memory sets do not end
  std::atomic<std::uint32_t>
      wedge_on_kill;  // the card hangs when a program with a restored context is killed
  std::atomic<std::uint32_t> remapped_corrected;  // rows
  std::atomic<std::uint32_t> remapped_uncorrected;
  EccCounters ecc_volatile;   // since the driver was loaded
  EccCounters ecc_aggregate;  // of the card's life
  std::uint64_t xid_count;
  XidEvent xids[kXidRing];
  ContextEntry contexts[kMaxContexts];
  std::uint32_t memory_high;  // no entry in use at or above
  MemoryEntry memory[kMaxMemoryEntries];
};

struct ProcessUse {
  pid_t pid;
  std::uint64_t bytes;
};

class Card {
 public:
  // Opens the card of device `index`, making folder and file at first use. A card without users takes on a
  // CUDASIM_MEMORY that has changed since.
  static std::unique_ptr<Card> open(const std::string& dir, int index, std::uint64_t memory);
  // The same, but neither makes nor changes anything; for tools.
  static std::unique_ptr<Card> open_existing(const std::string& dir, int index);
  ~Card();
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  // Counts memory of the memfd `fd` (which carries its lock already). Sweeps first if it does not fit. The
  // entry, or -1 when the device is full.
  int add_memory(int fd, std::uint64_t bytes, pid_t program, bool exportable);
  // The entry of an exported descriptor, or -1 if it is none of this card.
  int find_memory(int fd, std::uint64_t* bytes, bool* exportable);
  // This process's context has taken a lock of its own on the memory of the entry.
  void memory_taken(int entry);
  // Called by one holder after it has let go: frees the entry if it was the last one. `probe` is a descriptor
  // of the memfd without a lock of its own.
  void memory_let_go(int entry, int probe);
  struct Memory {
    std::uint64_t total;
    std::uint64_t used;
  };
  Memory memory();  // sweeps
  std::vector<ProcessUse> processes();
  // The contexts that are alive.
  std::vector<ContextEntry> contexts();

  // Enters a context of this process as executor; -1 when there are too many.
  int add_context(pid_t program);
  void remove_context(int slot);

  void raise_xid(std::uint64_t code, pid_t pid);
  // The Xids from number `from` on (numbers count from 0; at most the last kXidRing are kept).
  std::vector<XidEvent> xids_since(std::uint64_t from);
  std::uint64_t xid_count();
  // Makes an error sticky in every context of program `pid`; the number of contexts.
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
  int own_slot_ = -1;  // of the context that add_context entered
};

// Takes the lock that means "held" on an open description; false if the kernel refuses.
bool hold_memory(int fd);
// A second, independent description of the same memfd, without a lock; -1 with errno.
int reopen_memory(int fd);

}  // namespace cudasim
