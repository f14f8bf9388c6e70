// SPDX-License-Identifier: Apache-2.0
// The sources of the caching allocator's memory: separate segments (cuMemAlloc), or expandable segments.
// Expandable segments are a range of addresses that grows and shrinks by physical allocations.
// Threads: one. Ownership: every range must be returned before the end. Errors end the program.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace ckpt::examples {

constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kSmallSegment = 2 * kMiB;
constexpr std::uint64_t kLargeSegment = 20 * kMiB;

struct Range {
  CUdeviceptr at = 0;
  std::uint64_t bytes = 0;
  [[nodiscard]] CUdeviceptr end() const { return at + bytes; }
};

class Segments {
 public:
  virtual ~Segments() = default;
  Segments() = default;
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;
  // Returns a range of at least `bytes`.
  virtual Range more(std::uint64_t bytes) = 0;
  // Returns the part of a free range that give_back() accepts; empty if there is none.
  [[nodiscard]] virtual Range releasable(const Range& free) const = 0;
  virtual void give_back(const Range& range) = 0;
  // Returns whether two adjacent ranges may become one block.
  [[nodiscard]] virtual bool joins(CUdeviceptr border) const = 0;
};

class OwnSegments final : public Segments {
 public:
  explicit OwnSegments(std::uint64_t unit) : unit_(unit) {}
  ~OwnSegments() override;
  Range more(std::uint64_t bytes) override;
  [[nodiscard]] Range releasable(const Range& free) const override;
  void give_back(const Range& range) override;
  [[nodiscard]] bool joins(CUdeviceptr border) const override { return !made_.contains(border); }

 private:
  std::uint64_t unit_;
  std::map<CUdeviceptr, std::uint64_t> made_;
};

class ExpandableSegments final : public Segments {
 public:
  ExpandableSegments(std::uint64_t unit, CUdevice device);
  ~ExpandableSegments() override;
  Range more(std::uint64_t bytes) override;
  [[nodiscard]] Range releasable(const Range& free) const override;
  void give_back(const Range& range) override;
  [[nodiscard]] bool joins(CUdeviceptr) const override { return true; }

 private:
  CUmemGenericAllocationHandle create();
  [[nodiscard]] CUdeviceptr address(std::size_t index) const { return base_ + index * unit_; }
  std::uint64_t unit_;
  CUdevice device_;
  CUdeviceptr base_ = 0;
  std::vector<std::optional<CUmemGenericAllocationHandle>> handles_;
};

}  // namespace ckpt::examples
