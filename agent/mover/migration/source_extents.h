// SPDX-License-Identifier: Apache-2.0
// What of the job's memory a source moves: named tensors that are in no plan yet, and the extents of the
// plans that were sent. Dropped and freed ones are taken off.
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

  // A plan of what was named since the last one, whose tensors join `tensors`; none if nothing was. The first
  // plan is made even if it is empty: it carries the chunk size. A running job names memory before it exports
  // it: what has no region yet waits for the next time, but not `at_last`: a rank is paused only when its
  // exports are acknowledged, so what has none then was freed, or was never exported.
  Result<std::optional<image::Plan>> next_plan(const Regions& regions, std::uint64_t chunk_bytes,
                                               bool at_last, std::vector<wire::TensorInfo>& tensors);
  // Gives the sender what a plan that was sent names. kInvalidArgument: a tensor lies outside of its
  // allocation.
  Result<void> add(const image::Plan& plan, const Regions& regions, engine::Sender& sender);

  // Both return the extents that have gone: for Sender::drop_region(), without the lock. An extent goes with
  // the last of `tensors` that lies in it, or with its region.
  std::vector<std::uint64_t> drop_tensors(const std::vector<std::string>& names,
                                          const std::vector<wire::TensorInfo>& tensors);
  std::vector<std::uint64_t> drop_region(std::uint64_t region);

  // Of all plans; an empty one counts as one.
  [[nodiscard]] std::uint64_t tensors_sent() const noexcept { return tensors_sent_; }
  [[nodiscard]] std::string tensor_of(std::uint64_t extent) const;  // empty: it has gone
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
