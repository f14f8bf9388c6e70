// SPDX-License-Identifier: Apache-2.0
// The host state of a paused rank as the source's mover reads it: mapped where the file cannot shrink under the reader, else copied.
// Threads: a value of one owner. Errors: kInvalidArgument for a file shorter than it was said to be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::mover {

class HostStateView {
 public:
  HostStateView() = default;
  static Result<HostStateView> open(UniqueFd file, std::uint64_t bytes);
  HostStateView(HostStateView&& other) noexcept;
  HostStateView& operator=(HostStateView&&) = delete;
  ~HostStateView();
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return mapping_ != nullptr ? std::span(static_cast<const std::byte*>(mapping_), mapped_bytes_)
                               : std::span<const std::byte>(copy_);
  }

 private:
  void* mapping_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::vector<std::byte> copy_;
};

}  // namespace ckpt::mover
