// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/card/card.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "tests/simulators/cudasim/card/futex.h"

namespace cudasim {
namespace {

// The identifier of the layout. Files of builds with another layout are created again.
constexpr std::uint64_t kMagic = 0x6375646173696d00ULL ^ (sizeof(CardState) << 32) ^ sizeof(MemoryEntry);
constexpr off_t kContextLocks = off_t{1} << 40;

void make_folders(const std::string& dir) {
  for (std::size_t i = 1; i <= dir.size(); i++) {
    if (i == dir.size() || dir[i] == '/') ::mkdir(dir.substr(0, i).c_str(), 0700);
  }
}

void format_card(CardState* state, int index, std::uint64_t memory) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&state->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  state->index = index;
  state->configured_memory = memory;
  state->limit = memory;
  state->magic = kMagic;
}

bool locked_by_others(int fd, off_t start, off_t length) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

using InodeKey = std::pair<std::uint64_t, std::uint64_t>;

// Reads every inode with an open-file-description lock. Such a lock is the only trace of a descriptor that an
// unknown process holds.
bool read_locked_inodes(std::set<InodeKey>* out) {
  std::FILE* file = std::fopen("/proc/locks", "re");
  if (file == nullptr) return false;
  char line[512];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    unsigned major = 0;
    unsigned minor = 0;
    unsigned long inode = 0;
    if (std::sscanf(line, "%*s OFDLCK %*s %*s %*s %x:%x:%lu", &major, &minor, &inode) == 3) {
      out->emplace(makedev(major, minor), inode);
    }
  }
  std::fclose(file);
  return true;
}

}  // namespace

class CardLock {
 public:
  explicit CardLock(Card* card) : card_(card) { card_->lock(); }
  ~CardLock() { card_->unlock(); }
  CardLock(const CardLock&) = delete;
  CardLock& operator=(const CardLock&) = delete;

 private:
  Card* card_;
};

bool hold_memory(int fd) {
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

int reopen_memory(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return ::open(path.c_str(), O_RDWR | O_CLOEXEC);
}

std::unique_ptr<Card> Card::open(const std::string& dir, int index, std::uint64_t memory) {
  make_folders(dir);
  const std::string path = dir + "/device" + std::to_string(index);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  ::flock(fd, LOCK_EX);  // only one process formats the file
  struct stat info {};
  if (::fstat(fd, &info) != 0 || ::ftruncate(fd, sizeof(CardState)) != 0) {
    ::close(fd);
    return nullptr;
  }
  void* memory_map = ::mmap(nullptr, sizeof(CardState), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory_map == MAP_FAILED) {
    ::close(fd);
    return nullptr;
  }
  auto* state = static_cast<CardState*>(memory_map);
  if (state->magic != kMagic) {
    std::memset(memory_map, 0, sizeof(CardState));
    format_card(state, index, memory);
  }
  std::unique_ptr<Card> card(new Card(fd, state));
  if (state->configured_memory != memory) {
    CardLock lock(card.get());
    if (card->idle_locked()) {
      state->configured_memory = memory;
      state->limit = memory;
    }
  }
  ::flock(fd, LOCK_UN);
  return card;
}

std::unique_ptr<Card> Card::open_existing(const std::string& dir, int index) {
  const int fd = ::open((dir + "/device" + std::to_string(index)).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat info {};
  void* map = MAP_FAILED;
  if (::fstat(fd, &info) == 0 && info.st_size == static_cast<off_t>(sizeof(CardState))) {
    map = ::mmap(nullptr, sizeof(CardState), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (map != MAP_FAILED && static_cast<CardState*>(map)->magic == kMagic) {
    return std::unique_ptr<Card>(new Card(fd, static_cast<CardState*>(map)));
  }
  if (map != MAP_FAILED) ::munmap(map, sizeof(CardState));
  ::close(fd);
  return nullptr;
}

Card::~Card() {
  ::munmap(state_, sizeof(CardState));
  ::close(fd_);
}

void Card::lock() {
  if (pthread_mutex_lock(&state_->mutex) != EOWNERDEAD) return;
  // The holder died while it held the lock. Entries are written before they count, so a new count repairs
  // everything.
  state_->used = 0;
  for (const MemoryEntry& entry : state_->memory) {
    if (entry.inode != 0) state_->used += entry.bytes;
  }
  state_->memory_high = kMaxMemoryEntries;
  pthread_mutex_consistent(&state_->mutex);
}

bool Card::context_alive(int slot) {
  if (slot == own_slot_) return true;  // the kernel does not report our own lock
  return state_->contexts[slot].used != 0 && locked_by_others(fd_, kContextLocks + slot, 1);
}

bool Card::holder_alive(const MemoryEntry& entry) {
  return entry.holder >= 0 && entry.holder < kMaxContexts &&
         state_->contexts[entry.holder].generation == entry.holder_generation && context_alive(entry.holder);
}

bool Card::idle_locked() {
  for (int i = 0; i < kMaxContexts; i++) {
    if (context_alive(i)) return false;
  }
  sweep_locked();
  return state_->used == 0;
}

void Card::forget_locked(int entry) {
  MemoryEntry& memory = state_->memory[entry];
  state_->used -= memory.bytes;
  memory = {};
  while (state_->memory_high > 0 && state_->memory[state_->memory_high - 1].inode == 0) state_->memory_high--;
}

void Card::sweep_locked() {
  std::vector<int> doubtful;
  for (int i = static_cast<int>(state_->memory_high) - 1; i >= 0; i--) {
    if (state_->memory[i].inode != 0 && !holder_alive(state_->memory[i])) doubtful.push_back(i);
  }
  if (doubtful.empty()) return;
  std::set<InodeKey> held;
  // The kernel reports the list page by page, and may omit a lock if other locks are released meanwhile. So
  // the list is read twice.
  if (!read_locked_inodes(&held) || !read_locked_inodes(&held)) return;
  for (const int i : doubtful) {
    const MemoryEntry& entry = state_->memory[i];
    if (held.count({entry.device, entry.inode}) == 0) forget_locked(i);
  }
}

int Card::add_memory(int fd, std::uint64_t bytes, pid_t program, bool exportable) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return -1;
  CardLock lock(this);
  if (bytes > state_->limit) return -1;
  if (state_->used + bytes > state_->limit) sweep_locked();
  if (state_->used + bytes > state_->limit) return -1;
  int free_entry = 0;
  while (free_entry < kMaxMemoryEntries && state_->memory[free_entry].inode != 0) free_entry++;
  if (free_entry == kMaxMemoryEntries) return -1;
  state_->memory_high =
      std::max<std::uint32_t>(state_->memory_high, static_cast<std::uint32_t>(free_entry) + 1);
  const std::uint32_t generation = own_slot_ >= 0 ? state_->contexts[own_slot_].generation : 0;
  state_->memory[free_entry] = {info.st_dev,          info.st_ino, bytes,     program,
                                exportable ? 1U : 0U, own_slot_,   generation};
  state_->used += bytes;
  return free_entry;
}

int Card::find_memory(int fd, std::uint64_t* bytes, bool* exportable) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return -1;
  CardLock lock(this);
  for (std::uint32_t i = 0; i < state_->memory_high; i++) {
    const MemoryEntry& entry = state_->memory[i];
    if (entry.inode != info.st_ino || entry.device != info.st_dev || entry.inode == 0) continue;
    *bytes = entry.bytes;
    *exportable = entry.exportable != 0;
    return static_cast<int>(i);
  }
  return -1;
}

void Card::memory_taken(int entry) {
  CardLock lock(this);
  MemoryEntry& memory = state_->memory[entry];
  if (own_slot_ < 0 || memory.inode == 0 || holder_alive(memory)) return;
  memory.holder = own_slot_;
  memory.holder_generation = state_->contexts[own_slot_].generation;
}

void Card::memory_let_go(int entry, int probe) {
  CardLock lock(this);
  struct stat info {};
  MemoryEntry& memory = state_->memory[entry];
  // A sweep may have freed the entry already, and another allocation may use the entry now.
  if (::fstat(probe, &info) != 0 || memory.inode != info.st_ino || memory.device != info.st_dev) return;
  if (memory.holder == own_slot_) memory.holder = -1;
  if (!locked_by_others(probe, 0, 0)) forget_locked(entry);
}

Card::Memory Card::memory() {
  CardLock lock(this);
  sweep_locked();
  return {state_->limit, state_->used};
}

std::vector<ProcessUse> Card::processes() {
  CardLock lock(this);
  sweep_locked();
  std::vector<ProcessUse> out;
  for (int i = 0; i < kMaxContexts; i++) {
    const pid_t pid = state_->contexts[i].program;
    if (!context_alive(i)) continue;
    if (std::any_of(out.begin(), out.end(), [pid](const ProcessUse& use) { return use.pid == pid; }))
      continue;
    out.push_back({pid, 0});
  }
  for (std::uint32_t i = 0; i < state_->memory_high; i++) {
    for (ProcessUse& use : out) {
      if (state_->memory[i].inode != 0 && state_->memory[i].pid == use.pid)
        use.bytes += state_->memory[i].bytes;
    }
  }
  return out;
}

std::vector<ContextEntry> Card::contexts() {
  CardLock lock(this);
  std::vector<ContextEntry> out;
  for (int i = 0; i < kMaxContexts; i++) {
    if (context_alive(i)) out.push_back(state_->contexts[i]);
  }
  return out;
}

int Card::add_context(pid_t program) {
  CardLock lock(this);
  for (int i = 0; i < kMaxContexts; i++) {
    if (context_alive(i)) continue;
    struct flock held {};
    held.l_type = F_WRLCK;
    held.l_whence = SEEK_SET;
    held.l_start = kContextLocks + i;
    held.l_len = 1;
    if (::fcntl(fd_, F_OFD_SETLK, &held) != 0) continue;
    const std::uint32_t generation = state_->contexts[i].generation + 1;
    state_->contexts[i] = {1, program, static_cast<std::int32_t>(::getpid()), 0, generation};
    own_slot_ = i;
    return i;
  }
  return -1;
}

void Card::remove_context(int slot) {
  CardLock lock(this);
  state_->contexts[slot].used = 0;
}

void Card::raise_xid(std::uint64_t code, pid_t pid) {
  {
    CardLock lock(this);
    state_->xids[state_->xid_count % kXidRing] = {code, pid};
    state_->xid_count++;
  }
  notify();
}

std::vector<XidEvent> Card::xids_since(std::uint64_t from) {
  CardLock lock(this);
  std::vector<XidEvent> out;
  const std::uint64_t count = state_->xid_count;
  const std::uint64_t oldest = count > kXidRing ? count - kXidRing : 0;
  for (std::uint64_t i = std::max(from, oldest); i < count; i++) out.push_back(state_->xids[i % kXidRing]);
  return out;
}

std::uint64_t Card::xid_count() {
  CardLock lock(this);
  return state_->xid_count;
}

int Card::inject_error(pid_t pid, int result) {
  int count = 0;
  {
    CardLock lock(this);
    for (int i = 0; i < kMaxContexts; i++) {
      if (!context_alive(i) || state_->contexts[i].program != pid) continue;
      state_->contexts[i].injected_error = result;
      count++;
    }
  }
  notify();
  return count;
}

void Card::set_limit(std::uint64_t bytes) {
  CardLock lock(this);
  state_->limit = bytes;
}

void Card::notify() {
  state_->change.fetch_add(1);
  futex_wake_all(state_->change);
}

void Card::reset_faults() {
  {
    CardLock lock(this);
    state_->limit = state_->configured_memory;
  }
  state_->lost = 0;
  state_->latency_us = 0;
  state_->fail_copy = 0;
  state_->recovery_action = 0;
  state_->remap_pending = 0;
  state_->remap_failed = 0;
  state_->hung = 0;
  state_->wedge_on_kill = 0;
  state_->remapped_corrected = 0;
  state_->remapped_uncorrected = 0;
  for (EccCounters* counters : {&state_->ecc_volatile, &state_->ecc_aggregate}) {
    counters->corrected = 0;
    counters->uncorrected = 0;
  }
  notify();
}

}  // namespace cudasim
