// SPDX-License-Identifier: Apache-2.0
// The memory that a source moves: named tensors that are in no plan yet, and the extents of the plans that
// were sent. Dropped and freed ones are taken off.
//
// Threads: none of its own and no lock: every call holds the session's (Session::mutex_), which guards the
// regions as well.
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

  // Makes a plan of the tensors named since the last one, which join `tensors`; none if there are none. The
  // first plan is made even if it is empty: it carries the chunk size. A running job names memory before it
  // exports it: a tensor without a region yet waits for the next plan, but not `at_last`: a rank is paused
  // only when its exports are acknowledged, so a tensor without a region then was freed, or was never
  // exported.
  Result<std::optional<image::Plan>> next_plan(const Regions& regions, std::uint64_t chunk_bytes,
                                               bool at_last, std::vector<wire::TensorInfo>& tensors);
  // Adds the regions of a plan that was sent to the sender. kInvalidArgument: a tensor lies outside of its
  // allocation.
  Result<void> add(const image::Plan& plan, const Regions& regions, engine::Sender& sender);

  // Both return the extents that are dropped, for Sender::drop_region() without the lock. An extent is
  // dropped with the last of `tensors` that lies in it, or with its region.
  std::vector<std::uint64_t> drop_tensors(const std::vector<std::string>& names,
                                          const std::vector<wire::TensorInfo>& tensors);
  std::vector<std::uint64_t> drop_region(std::uint64_t region);

  // Returns the number of tensors in all plans; an empty plan counts as one tensor.
  [[nodiscard]] std::uint64_t tensors_sent() const noexcept { return tensors_sent_; }
  [[nodiscard]] std::string tensor_of(std::uint64_t extent) const;  // empty: it was dropped
  [[nodiscard]] std::vector<track::ChunkRange> ranges(const Regions& regions) const;
  [[nodiscard]] std::vector<image::ManifestExtent> in_manifest() const;

 private:
  struct Live {
    image::Extent extent;
    std::string tensor;
  };

  template <class Gone>
  std::vector<std::uint64_t> erase(Gone gone);

  std::vector<wire::TensorInfo> new_tensors_;  // not yet in a plan
  std::map<std::uint64_t, Live> live_;
  std::uint64_t next_extent_ = 1;
  std::uint64_t tensors_sent_ = 0;
};

}  // namespace ckpt::mover
