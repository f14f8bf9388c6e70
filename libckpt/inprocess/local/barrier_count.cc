// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/local/barrier_count.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <new>
#include <utility>

namespace ckpt::local {
namespace {

constexpr std::size_t kCountBytes = 4096;

}  // namespace

Result<BarrierCount> BarrierCount::map(UniqueFd fd) {
  void* address = ::mmap(nullptr, kCountBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return Error::from_errno("Cannot map the page of barriers");
  return BarrierCount(std::move(fd), std::launder(static_cast<Word*>(address)));
}

Result<BarrierCount> BarrierCount::create() {
  CKPT_TRY(fd, make_memory_file("ckpt-barriers", kCountBytes));
  return map(std::move(fd));
}

Result<BarrierCount> BarrierCount::open(UniqueFd fd) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Error::from_errno("Cannot inspect the page of barriers");
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (!S_ISREG(info.st_mode) || info.st_size != static_cast<off_t>(kCountBytes) || seals < 0 ||
      !(seals & F_SEAL_SHRINK)) {
    return Error(ErrorCode::kProtocol, "The page of barriers is not a sealed memory file of one page");
  }
  CKPT_TRY(count, map(std::move(fd)));
  count.fd_.reset();
  return std::move(count);
}

BarrierCount::BarrierCount(BarrierCount&& other) noexcept
    : fd_(std::move(other.fd_)), word_(std::exchange(other.word_, nullptr)) {}

BarrierCount& BarrierCount::operator=(BarrierCount&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(word_, other.word_);
  return *this;
}

BarrierCount::~BarrierCount() {
  if (word_ != nullptr) ::munmap(word_, kCountBytes);
}

std::uint64_t BarrierCount::read() const noexcept {
  // Pairs with count(): either this read returns the new count, or the rank reads the new stop_at.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return word_->load(std::memory_order_acquire);
}

void BarrierCount::go_on_from(std::uint64_t barrier) noexcept {
  word_->store(barrier, std::memory_order_seq_cst);
}

std::uint64_t BarrierCount::count() noexcept {
  // Only the rank writes the count.
  const std::uint64_t number = word_->load(std::memory_order_relaxed) + 1;
  word_->store(number, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return number;
}

}  // namespace ckpt::local
