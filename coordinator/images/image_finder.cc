// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/image_finder.h"

#include <fmt/format.h>

#include <algorithm>

namespace ckpt::coordinator {

bool ImageFinder::is_readable(const Image& image) const {
  if (image.folder.empty()) return nodes_.connected(image.node);
  const auto& nodes = nodes_.all();
  return std::any_of(nodes.begin(), nodes.end(), [](const auto& entry) { return entry.second.connected(); });
}

std::optional<Image> ImageFinder::newest(JobId job) const {
  return catalog_.newest(job,
                         [this](const Image& image) { return image.suspect.empty() && is_readable(image); });
}

Result<void> ImageFinder::check_is_alone(const Image& image) {
  if (image.set == 0) return ok();
  return Error(ErrorCode::kRefused,
               "Image " + image_text(image) +
                   " is one of a set, from which all ranks of its job must continue together");
}

Result<Image> ImageFinder::for_order(const Job& job, const std::string& verb,
                                     const std::optional<Image>& wanted) const {
  CKPT_TRY(image, choose(job, verb, wanted));
  CKPT_TRYV(check_is_alone(image));
  return std::move(image);
}

Result<Image> ImageFinder::choose(const Job& job, const std::string& verb,
                                  const std::optional<Image>& wanted) const {
  if (wanted) {
    if (is_readable(*wanted)) return *wanted;
    return Error(ErrorCode::kUnavailable, "Image " + image_text(*wanted) + " is in the checkpoint store of " +
                                              wanted->node + ", which is not connected");
  }
  const auto found = newest(job.id);
  const auto best = catalog_.newest(job.id, [](const Image& image) { return image.suspect.empty(); });
  const auto last = catalog_.newest(job.id, [](const Image&) { return true; });
  const bool is_doubted = last && !last->suspect.empty();
  if (is_doubted && (!best || verb != "restore"))
    return Error(
        ErrorCode::kRefused,
        fmt::format(
            "{} of job {} is suspect, since the image was taken after a fault of the job's GPU ({}): "
            "`restore {}` uses the image anyway{}",
            image_text(*last), job.spec.name, last->suspect, image_text(*last),
            best ? ", `restore " + image_text(*best) + "` from the newest image before the fault" : ""));
  if (!found && best)
    return Error(ErrorCode::kUnavailable, "The images of job " + job.spec.name +
                                              " are in the checkpoint store of " + best->node +
                                              ", which is not connected");
  if (!found)
    return Error(ErrorCode::kNotFound,
                 "There is no image of job " + job.spec.name + ": `snapshot` takes one");
  // Only `restore` may use an older image than the newest one, which cannot be read now.
  if (verb != "restore" && image_text(*best) != image_text(*found))
    return Error(
        ErrorCode::kUnavailable,
        fmt::format(
            "Job {} is parked in {}, and {} is not connected; `restore {}` starts it from an older image",
            job.spec.name, image_text(*best), best->node, image_text(*found)));
  return *found;
}

bool ImageFinder::is_unknown_job(JobId id) const {
  return jobs_.find(id) == nullptr && !store_.gave(id);
}

std::vector<Image> ImageFinder::of_unknown_jobs() const {
  std::vector<Image> found;
  for (const ListedImage& listed : catalog_.list()) {
    const Image& image = listed.image;
    if (listed.damaged || !is_unknown_job(image.job)) continue;
    if (!found.empty() && found.back().job == image.job)
      found.back() = image;
    else
      found.push_back(image);
  }
  return found;
}

Result<Image> ImageFinder::of_unknown(const std::string& id_or_name) const {
  const JobId given = parse_job_id(id_or_name).value_or(0);
  std::optional<ListedImage> newest;
  for (const ListedImage& listed : catalog_.list()) {
    const Image& image = listed.image;
    const bool meant = given != 0 ? wire::may_mean(given, image.job) : name_in(image) == id_or_name;
    if (!meant || listed.damaged || !is_unknown_job(image.job)) continue;
    if (newest && newest->image.job != image.job) {
      const Image& shown = newest->image.set == 0 ? newest->image : image;
      CKPT_TRYV(check_is_alone(shown));
      return Error(ErrorCode::kRefused,
                   fmt::format("Several jobs with images have the name {}: name the image, like `restore {}`",
                               id_or_name, image_text(shown)));
    }
    newest = listed;
  }
  if (!newest)
    return Error(ErrorCode::kNotFound,
                 fmt::format("There is no job \"{}\", and no image of a job with that name: see `images`",
                             id_or_name));
  CKPT_TRYV(check_is_alone(newest->image));
  const auto left_there = [&](const Node& node) {
    return node.connected() &&
           std::any_of(node.instances.begin(), node.instances.end(), [&](const auto& instance) {
             return instance.job == newest->image.job && is_over(instance.phase) &&
                    std::max(instance.runs_as, instance.incarnation) >= newest->incarnation;
           });
  };
  const auto& nodes = nodes_.all();
  if (std::any_of(nodes.begin(), nodes.end(), [&](const auto& entry) { return left_there(entry.second); }))
    return newest->image;
  return Error(ErrorCode::kRefused,
               fmt::format("The coordinator does not know job {}, which may run on an unreachable node: "
                           "`restore {}` confirms that the job is not running",
                           id_or_name, image_text(newest->image)));
}

}  // namespace ckpt::coordinator
