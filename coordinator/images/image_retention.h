// SPDX-License-Identifier: Apache-2.0
// Selects the images of ended jobs to remove. These are images of jobs that ended long ago and, above the
// number to keep, of the jobs that ended first. Images of running, parked or unknown jobs are never removed.
// Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/images/image_catalog.h"

namespace ckpt::coordinator {

struct RetentionLimits {
  std::int64_t max_age_ms = 0;  // the limit for the time since the job's end
  std::size_t max_images = 0;
};

// Returns the images to remove, those of the earliest ended jobs first. `listed` is in the order of
// ImageCatalog::list().
[[nodiscard]] std::vector<ListedImage> images_to_collect(const std::vector<ListedImage>& listed,
                                                         const RetentionLimits& limits, std::int64_t now_ms);

}  // namespace ckpt::coordinator
