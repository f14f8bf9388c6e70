// SPDX-License-Identifier: Apache-2.0
// The images of a gang. One of each rank, all of one barrier, are a set; a gang goes on from a whole set only.
// Threads: pure functions of the catalog.
#pragma once

#include <optional>
#include <vector>

#include "coordinator/gangs/gang.h"
#include "coordinator/images/image_catalog.h"

namespace ckpt::coordinator {

struct GangSet {
  std::uint64_t number = 0;
  std::vector<Image> images;    // by rank
  std::int64_t barrier_ms = 0;  // Unix time: the earliest of its images

  // Why one of its images is; empty: none is.
  [[nodiscard]] std::string suspect() const;
};

// The whole ones, newest first.
[[nodiscard]] std::vector<GangSet> sets_of(const ImageCatalog& catalog, const Gang& gang);
// Images of sets that lack a rank: nothing can go on from them.
[[nodiscard]] std::vector<Image> leftovers_of(const ImageCatalog& catalog, const Gang& gang);
// The set that the image is of, if it is whole.
[[nodiscard]] std::optional<GangSet> set_with(const ImageCatalog& catalog, const Gang& gang,
                                              const Image& image);

}  // namespace ckpt::coordinator
