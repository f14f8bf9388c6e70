// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/lazy_pages/process_pages.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "agent/keeper/lazy_pages/plan.h"

namespace ckpt::lazy_pages {
namespace {

constexpr std::uint64_t kPieceBytes = 256 << 10;  // size of a piece; a waiting thread waits for at most one
                                                  // piece
constexpr std::uint64_t kAroundBytes = 64 << 10;  // bytes that are copied together with a page for which a
                                                  // thread waits
// The time after which a moved mapping counts as settled. A mapping leaves its old place before the kernel
// reports the move. A thread of the process makes the report.
constexpr Nanos kSettled = Nanos{60} * 1'000'000'000;

}  // namespace

Result<void> ProcessPages::read_events(std::vector<ProcessPages>& forked) {
  for (;;) {
    uffd_msg event{};
    const ssize_t got = ::read(faults_.get(), &event, sizeof event);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return ok();
    if (got < 0) return Error::from_errno("Cannot read the memory events of a process");
    if (got != sizeof event)
      return Error(ErrorCode::kIo, "The kernel reported an incomplete memory event of a process");
    switch (event.event) {
      case UFFD_EVENT_PAGEFAULT: {
        CKPT_TRYV(bring(event.arg.pagefault.address / kPageBytes * kPageBytes));
        break;
      }
      case UFFD_EVENT_REMOVE:
      case UFFD_EVENT_UNMAP:
        missing_.drop(event.arg.remove.start, event.arg.remove.end - event.arg.remove.start);
        break;
      case UFFD_EVENT_REMAP:
        missing_.move(event.arg.remap.from, event.arg.remap.to, event.arg.remap.len);
        break;
      case UFFD_EVENT_FORK:
        forked.emplace_back(UniqueFd(static_cast<int>(event.arg.fork.ufd)), missing_);
        break;
      default:
        return Error(ErrorCode::kIo,
                     "The kernel reported an unknown memory event, " + std::to_string(event.event));
    }
  }
}

Result<void> ProcessPages::bring_some() {
  if (missing_.is_empty() || has_ended_) return ok();
  const MissingMemory::Piece piece = missing_.next(cursor_, kPieceBytes);
  cursor_ = piece.address + piece.bytes;
  CKPT_TRY(outcome, copy(piece));
  is_stalled_ = outcome == Outcome::kLater;
  return ok();
}

Result<void> ProcessPages::bring(std::uint64_t address) {
  const auto piece = missing_.at(address, kAroundBytes);
  CKPT_TRY(outcome, piece ? copy(*piece) : zero(address));
  if (outcome == Outcome::kLater) waiting_.push_back(address);
  return ok();
}

Result<void> ProcessPages::bring_waiting() {
  for (const std::uint64_t address : std::exchange(waiting_, {})) {
    if (has_ended_) break;
    CKPT_TRYV(bring(address));
  }
  return ok();
}

// Copies a piece into the process. The kernel copies into one mapping only, and the program may have split a
// mapping.
Result<ProcessPages::Outcome> ProcessPages::copy(MissingMemory::Piece piece) {
  for (;;) {
    CKPT_TRY(outcome, try_copy(piece));
    if (outcome != Outcome::kNotOneMapping) return outcome;
    piece.bytes = piece.bytes / kPageBytes / 2 * kPageBytes;
  }
}

Result<ProcessPages::Outcome> ProcessPages::try_copy(const MissingMemory::Piece& piece) {
  uffdio_copy order{};
  order.dst = piece.address;
  order.src = reinterpret_cast<std::uint64_t>(piece.from);
  order.len = piece.bytes;
  const int error = ::ioctl(faults_.get(), UFFDIO_COPY, &order) == 0 ? 0 : errno;
  if (order.copy > 0) missing_.drop(piece.address, static_cast<std::uint64_t>(order.copy));
  if (error == 0 || order.copy > 0) return Outcome::kDone;
  return settle(piece, error);
}

// Decides how to continue after a copy that transferred nothing.
Result<ProcessPages::Outcome> ProcessPages::settle(const MissingMemory::Piece& piece, int error) {
  switch (error) {
    case EAGAIN:
    case ENOMEM:  // memory is short; the process waits as for any memory allocation
      return Outcome::kLater;
    case EEXIST:  // the process already has the page
      missing_.drop(piece.address, kPageBytes);
      wake(piece.address);
      return Outcome::kDone;
    case ENOENT:
      if (piece.bytes > kPageBytes) return Outcome::kNotOneMapping;
      if (now_ns() - unmapped_.try_emplace(piece.address, now_ns()).first->second < kSettled)
        return Outcome::kLater;
      unmapped_.erase(piece.address);
      missing_.drop(piece.address, kPageBytes);
      return Outcome::kDone;
    case ESRCH:
    case ENOSPC:
      has_ended_ = true;
      return Outcome::kEnded;
    default:
      return Error::from_errno(error, "Cannot supply missing memory to a process");
  }
}

Result<ProcessPages::Outcome> ProcessPages::zero(std::uint64_t address) {
  uffdio_zeropage order{};
  order.range = {address, kPageBytes};
  if (::ioctl(faults_.get(), UFFDIO_ZEROPAGE, &order) == 0) return Outcome::kDone;
  switch (errno) {
    case EAGAIN:
    case ENOMEM:
      return Outcome::kLater;
    case EEXIST:
    case ENOENT:  // the page was unmapped in the meantime; the waiting thread detects this itself
      wake(address);
      return Outcome::kDone;
    case ESRCH:
      has_ended_ = true;
      return Outcome::kEnded;
    default:
      return Error::from_errno("Cannot supply an empty page to a process");
  }
}

void ProcessPages::wake(std::uint64_t address) const {
  uffdio_range range{address, kPageBytes};
  (void)::ioctl(faults_.get(), UFFDIO_WAKE, &range);
}

}  // namespace ckpt::lazy_pages
