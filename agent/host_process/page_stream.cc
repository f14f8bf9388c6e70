// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/page_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace ckpt::agent::host {
namespace {

constexpr int kPipeBytes = 1 << 20;             // more needs a right that root of a container may lack
constexpr std::uint64_t kReadBytes = 1u << 20;  // of one read
constexpr std::uint64_t kStep = 2u << 20;       // of one word of growth

}  // namespace

Result<std::unique_ptr<PageStream>> PageStream::create(std::uint64_t most, std::uint64_t expected) {
  UniqueFd file(::memfd_create("gpumigrate-process", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(most)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0)
    return Error::from_errno("Making a memory file for a process's image");
  void* memory = ::mmap(nullptr, most, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return Error::from_errno("Mapping a memory file for a process's image");
  std::unique_ptr<PageStream> stream(
      new PageStream(std::move(file), static_cast<std::byte*>(memory), most, std::min(expected, most)));
  // Where it fails, reading does it.
  (void)::madvise(memory, stream->expected_, MADV_POPULATE_WRITE);
  return stream;
}

PageStream::~PageStream() {
  write_end_.reset();
  if (cancel_) (void)::eventfd_write(cancel_.get(), 1);
  if (thread_.joinable()) thread_.join();
  ::munmap(memory_, most_);
}

Result<UniqueFd> PageStream::duplicate_file() const {
  UniqueFd copy(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 3));
  if (!copy) return Error::from_errno("Duplicating a memory file");
  return copy;
}

Result<void> PageStream::begin(const std::string& folder, std::size_t position,
                               std::function<void(std::uint64_t)> grew) {
  if (thread_.joinable()) return Error(ErrorCode::kInternal, "The pages' stream has begun already");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::from_errno("Making a pipe for a process's pages");
  read_end_.reset(ends[0]);
  write_end_.reset(ends[1]);
  (void)::fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);
  cancel_.reset(::eventfd(0, EFD_CLOEXEC));
  if (!cancel_) return Error::from_errno("Making a pipe for a process's pages");
  name_ = pages_name(position);
  CKPT_TRYV(link_to_descriptor(ends[1], folder + "/" + name_));
  grew_ = std::move(grew);
  try {
    thread_ = std::thread([this] { read_all(); });
  } catch (const std::system_error&) {
    return Error(ErrorCode::kOutOfMemory, "No thread can be started to read a process's pages");
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
    const std::uint64_t at = filled_.load();
    if (at == most_) {
      error_.emplace(ErrorCode::kOutOfMemory, "A process has more pages than it had when its move began");
      break;
    }
    const ssize_t got = ::read(read_end_.get(), memory_ + at, std::min(kReadBytes, most_ - at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error_.emplace(Error::from_errno("Reading a process's pages"));
    if (got <= 0) break;
    filled_.store(at + static_cast<std::uint64_t>(got));
    if (filled_.load() - told < kStep) continue;
    told = filled_.load();
    grew_(told);
  }
  read_end_.reset();
}

Result<PlacedPages> PageStream::finish() {
  write_end_.reset();
  if (thread_.joinable()) thread_.join();
  if (error_) return *error_;
  CKPT_TRY(file, duplicate_file());
  PlacedPages pages;
  pages.file = std::move(file);
  pages.name = name_;
  pages.bytes = filled_.load();
  return pages;
}

}  // namespace ckpt::agent::host
