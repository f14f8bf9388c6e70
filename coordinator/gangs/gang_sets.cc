// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/gang_sets.h"

#include <algorithm>
#include <map>

namespace ckpt::coordinator {
namespace {

// The images of a gang, by set number and then by rank.
using ImagesOfSets = std::map<std::uint64_t, std::map<std::uint32_t, Image>>;

ImagesOfSets images_by_set(const ImageCatalog& catalog, const WholeJob& gang) {
  ImagesOfSets sets;
  for (const Job* rank : gang.ranks) {
    for (const ListedImage& listed : catalog.list(rank->id)) {
      if (listed.image.set != 0 && !listed.damaged)
        sets[listed.image.set].insert_or_assign(rank->rank_number(), listed.image);
    }
  }
  return sets;
}

}  // namespace

std::string GangSet::suspect() const {
  for (const Image& image : images)
    if (!image.suspect.empty()) return image.suspect;
  return {};
}

std::vector<GangSet> sets_of(const ImageCatalog& catalog, const WholeJob& gang) {
  std::vector<GangSet> sets;
  for (auto& [number, images] : images_by_set(catalog, gang)) {
    if (images.size() != gang.size) continue;
    GangSet& set = sets.emplace_back();
    set.number = number;
    for (auto& [rank, image] : images) {
      const bool is_first = set.images.empty();
      set.barrier_ms = is_first ? image.barrier_ms : std::min(set.barrier_ms, image.barrier_ms);
      set.images.push_back(std::move(image));
    }
  }
  std::reverse(sets.begin(), sets.end());
  return sets;
}

std::vector<Image> leftovers_of(const ImageCatalog& catalog, const WholeJob& gang) {
  std::vector<Image> left;
  for (auto& [number, images] : images_by_set(catalog, gang)) {
    if (images.size() == gang.size) continue;
    for (auto& [rank, image] : images) left.push_back(std::move(image));
  }
  return left;
}

std::optional<GangSet> set_with(const ImageCatalog& catalog, const WholeJob& gang, const Image& image) {
  for (GangSet& set : sets_of(catalog, gang)) {
    const bool has_it = std::any_of(set.images.begin(), set.images.end(), [&image](const Image& own) {
      return image_text(own) == image_text(image);
    });
    if (has_it) return std::move(set);
  }
  return std::nullopt;
}

}  // namespace ckpt::coordinator
