// SPDX-License-Identifier: Apache-2.0
// The memory that a source moves: named tensors that are in no plan yet, and the extents of the plans that
// were sent. Dropped and freed extents are removed.
//
// Threads: the class has no thread and no lock. Every call holds the session's lock (Session::mutex_), which
// also guards the regions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/mover/session/session.h"
#include "libckpt/datapath/engine/source/sender.h"
#include "libckpt/datapath/track/scanner.h"
#include "libckpt/protocol/wire/tensor.h"
#include "libckpt/store/manifest.h"
#include "libckpt/store/plan.h"

namespace ckpt::mover {

class SourceExtents {
 public:
  using Regions = std::map<std::uint64_t, AttachedRegion>;

  void name(const std::vector<wire::TensorInfo>& tensors);

  // Creates a plan of the tensors that were named since the last plan, and adds them to `tensors`. Returns
  // nothing if there are no such tensors. The first plan is created even if it is empty, because it contains
  // the chunk size. A running job names memory before it exports the memory. Therefore a tensor without a
  // region waits for the next plan, except if `at_last` is set. A rank is paused only when its exports are
  // acknowledged, so a tensor without a region was then freed, or was never exported.
  Result<std::optional<image::Plan>> next_plan(const Regions& regions, std::uint64_t chunk_bytes,
                                               bool at_last, std::vector<wire::TensorInfo>& tensors);
  // Adds the regions of a sent plan to the sender. kInvalidArgument means that a tensor lies outside its
  // allocation.
  Result<void> add(const image::Plan& plan, const Regions& regions, engine::Sender& sender);

  // Returns the extents that are dropped, for Sender::drop_region() without the lock. An extent is dropped
  // with the last of `tensors` that lies in it, or with its region.
  std::vector<std::uint64_t> drop_tensors(const std::vector<std::string>& names,
                                          const std::vector<wire::TensorInfo>& tensors);
  std::vector<std::uint64_t> drop_region(std::uint64_t region);

  // Returns the number of tensors in all plans. An empty plan counts as one tensor.
  [[nodiscard]] std::uint64_t tensors_sent() const noexcept { return tensors_sent_; }
  [[nodiscard]] std::string tensor_of(std::uint64_t extent) const;  // returns the name of the extent's
                                                                    // tensor; empty if the extent was dropped
  [[nodiscard]] std::vector<track::ChunkRange> ranges(const Regions& regions) const;
  [[nodiscard]] std::vector<image::ManifestExtent> in_manifest() const;

 private:
  struct Live {
    image::Extent extent;
    std::string tensor;
  };

  template <class Gone>
  std::vector<std::uint64_t> erase(Gone gone);

  std::vector<wire::TensorInfo> new_tensors_;  // tensors that are not in a plan yet
  std::map<std::uint64_t, Live> live_;
  std::uint64_t next_extent_ = 1;
  std::uint64_t tensors_sent_ = 0;
};

}  // namespace ckpt::mover
