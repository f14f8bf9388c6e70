// SPDX-License-Identifier: Apache-2.0
// Selects the images of ended jobs to remove: those whose job ended long ago, and, above the number to
// keep, those whose job ended first. Images of jobs that live, rest or are not known are never removed. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/images/image_catalog.h"

namespace ckpt::coordinator {

struct RetentionLimits {
  std::int64_t max_age_ms = 0;  // since the job's end
  std::size_t max_images = 0;
};

// Oldest end first. `listed` as ImageCatalog::list() has it.
[[nodiscard]] std::vector<ListedImage> images_to_collect(const std::vector<ListedImage>& listed,
                                                         const RetentionLimits& limits, std::int64_t now_ms);

}  // namespace ckpt::coordinator
