// SPDX-License-Identifier: Apache-2.0
// The images of a gang. A set has one image of each rank, all from one barrier. A gang continues only from a
// whole set.
// Threads: pure functions of the catalog.
#pragma once

#include <optional>
#include <vector>

#include "coordinator/fleet/whole_job.h"
#include "coordinator/images/image_catalog.h"

namespace ckpt::coordinator {

struct GangSet {
  std::uint64_t number = 0;
  std::vector<Image> images;    // the set's images by rank
  std::int64_t barrier_ms = 0;  // the barrier time of the earliest image, in Unix milliseconds

  // Returns why one of the images is suspect, or an empty string if none is suspect.
  [[nodiscard]] std::string suspect() const;
};

// Returns the complete sets (those with an image of every rank), newest first.
[[nodiscard]] std::vector<GangSet> sets_of(const ImageCatalog& catalog, const WholeJob& gang);
// Returns the images of sets that lack a rank. Nothing can continue from such images.
[[nodiscard]] std::vector<Image> leftovers_of(const ImageCatalog& catalog, const WholeJob& gang);
// Returns the set that contains the image, or nullopt if this set lacks the image of any rank.
[[nodiscard]] std::optional<GangSet> set_with(const ImageCatalog& catalog, const WholeJob& gang,
                                              const Image& image);

}  // namespace ckpt::coordinator
