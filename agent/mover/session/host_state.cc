// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/session/host_state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <system_error>
#include <utility>

namespace ckpt::mover {
namespace {

std::future<track::Fingerprint> begin_fingerprint(std::span<const std::byte> bytes,
                                                  std::shared_ptr<const track::FingerprintParams> params) {
  const auto compute = [bytes, params = std::move(params)] { return track::fingerprint(*params, bytes); };
  try {
    return std::async(std::launch::async, compute);
  } catch (const std::system_error&) {  // without an available thread, the fingerprint is computed on request
    return std::async(std::launch::deferred, compute);
  }
}

}  // namespace

Result<HostStateView> HostStateView::open(UniqueFd file, std::uint64_t bytes,
                                          std::shared_ptr<const track::FingerprintParams> params) {
  CKPT_TRY(view, map(file, bytes));
  view.fingerprint_ = begin_fingerprint(view.bytes(), std::move(params));
  return std::move(view);
}

Result<HostStateView> HostStateView::map(const UniqueFd& file, std::uint64_t bytes) {
  HostStateView view;
  if (bytes == 0) return view;
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return Error::from_errno("Cannot read the size of the host state");
  if (static_cast<std::uint64_t>(status.st_size) < bytes)
    return Error(ErrorCode::kInvalidArgument, "The host state's file is shorter than stated");
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0) {
    void* mapping = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
    if (mapping == MAP_FAILED) return Error::from_errno("Cannot map the host state");
    view.mapping_ = mapping;
    view.mapped_bytes_ = bytes;
    return view;
  }
  view.copy_.resize(bytes);
  for (std::uint64_t at = 0; at < bytes;) {
    const ssize_t got = ::pread(file.get(), view.copy_.data() + at, bytes - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("Cannot read the host state");
    if (got == 0) return Error(ErrorCode::kInvalidArgument, "The host state's file shrank while it was read");
    at += static_cast<std::uint64_t>(got);
  }
  return view;
}

HostStateView::HostStateView(HostStateView&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      copy_(std::move(other.copy_)),
      fingerprint_(std::move(other.fingerprint_)) {}

HostStateView::~HostStateView() {
  if (fingerprint_.valid()) fingerprint_.wait();
  if (mapping_ != nullptr) ::munmap(mapping_, mapped_bytes_);
}

}  // namespace ckpt::mover
