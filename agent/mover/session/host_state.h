// SPDX-License-Identifier: Apache-2.0
// The host state of a paused rank as the source's mover reads it. The state is mapped if the file cannot
// shrink during the read, and is copied otherwise. Its fingerprint, which the manifest needs after all bytes
// were sent, is computed in parallel.
// Threads: a plain value of one owner, with a separate thread while the fingerprint is computed. Errors:
// kInvalidArgument for a file that is shorter than stated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/datapath/track/fingerprint.h"

namespace ckpt::mover {

class HostStateView {
 public:
  HostStateView() = default;
  static Result<HostStateView> open(UniqueFd file, std::uint64_t bytes,
                                    std::shared_ptr<const track::FingerprintParams> params);
  HostStateView(HostStateView&& other) noexcept;
  HostStateView& operator=(HostStateView&&) = delete;
  ~HostStateView();
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return mapping_ != nullptr ? std::span(static_cast<const std::byte*>(mapping_), mapped_bytes_)
                               : std::span<const std::byte>(copy_);
  }
  // Returns the fingerprint of bytes() after waiting for it. Call this function once.
  [[nodiscard]] track::Fingerprint fingerprint() { return fingerprint_.get(); }

 private:
  static Result<HostStateView> map(const UniqueFd& file, std::uint64_t bytes);

  void* mapping_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::vector<std::byte> copy_;
  std::future<track::Fingerprint> fingerprint_;  // the fingerprint's result; its thread reads bytes()
};

}  // namespace ckpt::mover
