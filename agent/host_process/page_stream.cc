// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/page_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace ckpt::agent::host {
namespace {

constexpr int kPipeBytes = 1 << 20;             // size of the pipe; a larger pipe needs a right that root in
                                                // a container may lack
constexpr std::uint64_t kReadBytes = 1u << 20;  // maximum number of bytes of one read
constexpr std::uint64_t kStep = 2u << 20;       // minimum growth in bytes between two reports of progress

}  // namespace

Result<std::unique_ptr<PageStream>> PageStream::create(std::uint64_t limit, std::uint64_t expected) {
  CKPT_TRY(log, MemoryLog::create(limit, expected));
  return std::unique_ptr<PageStream>(new PageStream(std::move(log)));
}

PageStream::~PageStream() {
  write_end_.reset();
  if (cancel_) (void)::eventfd_write(cancel_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

Result<void> PageStream::begin(const std::string& folder, std::size_t position,
                               std::function<void(std::uint64_t)> grew) {
  if (thread_.joinable()) return Error(ErrorCode::kInternal, "The stream of pages has already been started");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::from_errno("Cannot create a pipe for a process's pages");
  read_end_.reset(ends[0]);
  write_end_.reset(ends[1]);
  (void)::fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);
  cancel_.reset(::eventfd(0, EFD_CLOEXEC));
  if (!cancel_) return Error::from_errno("Cannot create a pipe for a process's pages");
  name_ = pages_name(position);
  CKPT_TRYV(link_to_descriptor(ends[1], folder + "/" + name_));
  grew_ = std::move(grew);
  try {
    thread_ = std::thread([this] { read_all(); });
  } catch (const std::system_error&) {
    return Error(ErrorCode::kOutOfMemory, "Cannot start a thread to read the pages of a process");
  }
  return ok();
}

bool PageStream::wait_for_pages() const {
  pollfd events[2] = {{read_end_.get(), POLLIN, 0}, {cancel_.get(), POLLIN, 0}};
  while (::poll(events, 2, -1) < 0) {
    if (errno != EINTR) return false;
  }
  return events[1].revents == 0;
}

void PageStream::read_all() {
  std::uint64_t told = 0;
  while (wait_for_pages()) {
    const std::uint64_t at = log_->filled();
    if (at == log_->limit()) {
      error_.emplace(ErrorCode::kOutOfMemory, "A process has more pages than it had when its move began");
      break;
    }
    const auto place = log_->reserve(std::min(kReadBytes, log_->limit() - at));
    if (!place) {
      error_.emplace(place.error());
      break;
    }
    const ssize_t got = ::read(read_end_.get(), place->data(), place->size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error_.emplace(Error::from_errno("Cannot read a process's pages"));
    if (got <= 0) break;
    log_->append(static_cast<std::uint64_t>(got));
    has_any_.store(true);
    if (log_->filled() - told < kStep) continue;
    told = log_->filled();
    grew_(told);
  }
  read_end_.reset();
}

Result<PlacedPages> PageStream::finish() {
  write_end_.reset();
  if (thread_.joinable()) thread_.join();
  if (error_) return *error_;
  CKPT_TRY(file, log_->duplicate_file());
  PlacedPages pages;
  pages.file = std::move(file);
  pages.name = name_;
  pages.bytes = log_->filled();
  return pages;
}

}  // namespace ckpt::agent::host
