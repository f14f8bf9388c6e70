// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/target/host_memory_reservation.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "libckpt/base/machine/memory_left.h"

#ifndef MADV_POPULATE_WRITE  // defined since Linux 5.14; older headers lack it
#define MADV_POPULATE_WRITE 23
#endif

namespace ckpt::engine {
namespace {

constexpr std::uint64_t kStep = std::uint64_t{32} << 20;  // the number of bytes between two checks of whether
                                                          // the memory is still wanted
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kSpare = std::uint64_t{256} << 20;  // memory that is left to other processes on this
                                                            // machine

}  // namespace

Result<std::shared_ptr<HostMemoryReservation>> HostMemoryReservation::create(std::uint64_t limit,
                                                                             std::uint64_t expected) {
  UniqueFd file(::memfd_create("ckpt-host-state", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(limit)) != 0)
    return Error::from_errno("Cannot create a memory file for the host state");
  void* mapping = ::mmap(nullptr, limit, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapping == MAP_FAILED) return Error::from_errno("Cannot map the memory file of the host state");
  std::shared_ptr<HostMemoryReservation> reservation(
      new HostMemoryReservation(std::move(file), static_cast<std::byte*>(mapping), limit));
  reservation->filled_ = expected == 0;
  if (expected == 0) return reservation;
  try {
    reservation->thread_ = std::thread([raw = reservation.get(), expected] { raw->fill(expected); });
  } catch (const std::system_error&) {
    reservation->filled_ = true;
  }
  return reservation;
}

HostMemoryReservation::~HostMemoryReservation() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  ::munmap(memory_, limit_);
}

bool HostMemoryReservation::is_over() {
  const std::lock_guard lock(mutex_);
  return over_;
}

bool HostMemoryReservation::populate(std::byte* at, std::uint64_t bytes) {
  for (std::uint64_t done = 0; done < bytes; done += kStep) {
    if (is_over()) return false;
    if (::madvise(at + done, std::min(kStep, bytes - done), MADV_POPULATE_WRITE) != 0) return false;
  }
  return true;
}

void HostMemoryReservation::fill(std::uint64_t expected) {
  const std::uint64_t process = (expected + kPage - 1) / kPage * kPage;
  const std::uint64_t needed = process + process / 8;
  if (populate(memory_, expected) && memory_left() >= needed + kSpare)
    hold(process, memory_left() >= 2 * needed + kSpare ? process : 0);
  const std::lock_guard lock(mutex_);
  filled_ = true;
  changed_.notify_all();
}

// Reserves memory in two page sizes. Small pages are reserved because the process takes small pages, which
// the kernel allocates from its fragments first. Large pages are for memory that the process then takes from
// whole blocks (docs/reports/host-memory.md).
void HostMemoryReservation::hold(std::uint64_t small, std::uint64_t large) {
  void* const mapping =
      ::mmap(nullptr, small + large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return;
  auto* const held = static_cast<std::byte*>(mapping);
  (void)::madvise(held, small, MADV_NOHUGEPAGE);
  (void)::madvise(held + small, large, MADV_HUGEPAGE);
  populate(held, small + large);
  std::unique_lock lock(mutex_);
  filled_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return over_; });
  lock.unlock();
  ::munmap(held, small + large);
}

void HostMemoryReservation::wait_until_filled() {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, latest_, [this] { return filled_ || hurries_ || over_; });
}

void HostMemoryReservation::hurry() {
  {
    const std::lock_guard lock(mutex_);
    hurries_ = true;
  }
  changed_.notify_all();
}

Result<ReceivedHostState> HostMemoryReservation::extract(std::uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return Error::from_errno("Cannot seal the memory file of the host state");
  ReceivedHostState state;
  state.file = std::move(file_);
  state.bytes = bytes;
  return state;
}

}  // namespace ckpt::engine
