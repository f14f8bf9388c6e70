// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/local/control_page.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <new>
#include <utility>

namespace ckpt::local {
namespace {

constexpr std::uint32_t kPageMagic = 0x47504b43;
constexpr std::uint32_t kPageVersion = 2;
constexpr std::size_t kPageBytes = 4096;

void wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void wait_for_change(const std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  ::syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), FUTEX_WAIT, seen, nullptr, nullptr, 0);
}

}  // namespace

Result<ControlPageMapping> ControlPageMapping::create() {
  CKPT_TRY(fd, make_memory_file("ckpt-control", kPageBytes));
  void* address = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return Error::from_errno("Cannot map the control page");
  ControlPageMapping mapping(std::move(fd),
                             new (address) ControlPage{kPageMagic, kPageVersion, {}, 0, {}, {}, {}});
  // A holder of the descriptor can only read: only the keeper writes the words.
  if (::fcntl(mapping.fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    return Error::from_errno("Cannot seal the control page");
  }
  return mapping;
}

Result<ControlPageMapping> ControlPageMapping::open(UniqueFd fd) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Error::from_errno("Cannot inspect the control page");
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (!S_ISREG(info.st_mode) || info.st_size != static_cast<off_t>(kPageBytes) || seals < 0 ||
      !(seals & F_SEAL_SHRINK)) {
    return Error(ErrorCode::kProtocol, "The control page is not a sealed memory file of one page");
  }
  void* address = ::mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return Error::from_errno("Cannot map the control page");
  ControlPageMapping mapping({}, std::launder(static_cast<ControlPage*>(address)));
  if (mapping.page_->magic != kPageMagic || mapping.page_->version != kPageVersion) {
    return Error(ErrorCode::kProtocol,
                 "The control page has another version: install the same release for all parts");
  }
  return mapping;
}

ControlPageMapping::ControlPageMapping(ControlPageMapping&& other) noexcept
    : fd_(std::move(other.fd_)), page_(std::exchange(other.page_, nullptr)) {}

ControlPageMapping& ControlPageMapping::operator=(ControlPageMapping&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(page_, other.page_);
  return *this;
}

ControlPageMapping::~ControlPageMapping() {
  unmap();
}

void ControlPageMapping::unmap() noexcept {
  if (page_ != nullptr) ::munmap(page_, kPageBytes);
  page_ = nullptr;
  fd_.reset();
}

void ControlPageMapping::ask_pause(std::uint64_t request, std::uint64_t at_barrier) noexcept {
  page_->pause_request.store(request, std::memory_order_relaxed);
  page_->pause_at.store(at_barrier, std::memory_order_relaxed);
  page_->request.fetch_or(kPauseAsked, std::memory_order_release);
  wake_all(page_->request);
}

void ControlPageMapping::withdraw_pause() noexcept {
  page_->request.fetch_and(~kPauseAsked, std::memory_order_release);
  wake_all(page_->request);
}

void ControlPageMapping::set_gate(bool closed) noexcept {
  if (closed) {
    page_->request.fetch_or(kGateClosed, std::memory_order_release);
  } else {
    page_->request.fetch_and(~kGateClosed, std::memory_order_release);
  }
  wake_all(page_->request);
}

void ControlPageMapping::wait_for_gate() const noexcept {
  for (;;) {
    const std::uint32_t seen = page_->request.load(std::memory_order_acquire);
    if ((seen & kGateClosed) == 0) return;
    wait_for_change(page_->request, seen);
  }
}

void ControlPageMapping::set_stop_at(std::uint64_t barrier) noexcept {
  page_->stop_at.store(barrier, std::memory_order_relaxed);
  std::uint32_t seen = page_->request.load(std::memory_order_relaxed);
  std::uint32_t next = 0;
  do {
    next = (seen & ~kStopsAtStep) + kOneChange + (barrier == 0 ? 0 : kStopsAtStep);
  } while (!page_->request.compare_exchange_weak(seen, next, std::memory_order_release));
  wake_all(page_->request);
}

void ControlPageMapping::wait_at(std::uint64_t barrier) const noexcept {
  for (;;) {
    const std::uint32_t seen = page_->request.load(std::memory_order_acquire);
    if ((seen & kStopsAtStep) == 0 || barrier < page_->stop_at.load(std::memory_order_relaxed)) return;
    const bool pauses = (seen & kPauseAsked) != 0;
    if (pauses && page_->pause_at.load(std::memory_order_relaxed) <= barrier) return;
    wait_for_change(page_->request, seen);
  }
}

}  // namespace ckpt::local
