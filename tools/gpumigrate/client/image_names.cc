// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/image_names.h"

#include <algorithm>

#include "libckpt/record/document.h"

namespace ckpt::cli {
namespace {

// Returns a key that orders images by age. Images of builds without sequence numbers count as the oldest.
std::pair<std::uint64_t, std::uint64_t> order_of(const api::Image& image) {
  return {image.sequence.value_or(0), image.version};
}

// Returns the newest images. There are several if one snapshot was copied to several places.
std::vector<api::Image> newest_of(const std::vector<api::Image>& images) {
  std::pair<std::uint64_t, std::uint64_t> highest;
  for (const api::Image& image : images) highest = std::max(highest, order_of(image));
  std::vector<api::Image> newest;
  for (const api::Image& image : images)
    if (order_of(image) == highest) newest.push_back(image);
  return newest;
}

bool are_of_one_job(const std::vector<api::Image>& images) {
  return std::all_of(images.begin(), images.end(),
                     [&](const api::Image& image) { return image.job == images.front().job; });
}

Error ambiguous(const std::string& given, const std::vector<api::Image>& images) {
  constexpr std::size_t kNamed = 5;
  std::string names;
  for (std::size_t i = 0; i < std::min(kNamed, images.size()); i++)
    names += (names.empty() ? "" : ", ") + images[i].id;
  if (images.size() > kNamed) names += " and " + std::to_string(images.size() - kNamed) + " more";
  return {ErrorCode::kRefused, "\"" + given + "\" names several images, use the id of one: " + names};
}

}  // namespace

bool is_image(const std::string& text) {
  return text.find_first_of("@#") != std::string::npos;
}

Result<std::string> image_meant(const std::vector<api::Image>& images, const std::string& given) {
  const std::size_t mark = given.find('#');
  const std::string job = given.substr(0, mark);
  std::vector<api::Image> found;
  for (const api::Image& image : images) {
    const bool is_of_job = image.job_name == job || image.job == job;
    const bool is_version =
        mark == std::string::npos || std::to_string(image.version) == given.substr(mark + 1);
    if (is_of_job && is_version) found.push_back(image);
  }
  if (found.empty()) return Error(ErrorCode::kNotFound, "There is no image \"" + given + "\"");
  // A job's name denotes its newest image, unless several jobs have the name.
  if (mark == std::string::npos && are_of_one_job(found)) found = newest_of(found);
  if (found.size() > 1) return ambiguous(given, found);
  return found.front().id;
}

Result<std::string> find_image(CoordinatorClient& coordinator, const std::string& given) {
  if (given.find('@') != std::string::npos) return given;
  CKPT_TRY(images, coordinator.get_all("/v1/images", "images"));
  return image_meant(record::list_from_answer<api::Image>(images), given);
}

}  // namespace ckpt::cli
