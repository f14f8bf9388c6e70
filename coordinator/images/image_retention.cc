// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/image_retention.h"

#include <algorithm>

namespace ckpt::coordinator {

std::vector<ListedImage> images_to_collect(const std::vector<ListedImage>& listed,
                                           const RetentionLimits& limits, std::int64_t now_ms) {
  std::vector<ListedImage> ended;
  for (const ListedImage& image : listed) {
    if (image.job_ended_ms != 0) ended.push_back(image);
  }
  std::stable_sort(ended.begin(), ended.end(), [](const ListedImage& a, const ListedImage& b) {
    return a.job_ended_ms < b.job_ended_ms;
  });
  const auto first_young = std::find_if(ended.begin(), ended.end(), [&](const ListedImage& image) {
    return now_ms - image.job_ended_ms < limits.max_age_ms;
  });
  const std::size_t too_old = static_cast<std::size_t>(first_young - ended.begin());
  const std::size_t too_many = ended.size() - std::min(ended.size(), limits.max_images);
  ended.resize(std::max(too_old, too_many));
  return ended;
}

}  // namespace ckpt::coordinator
