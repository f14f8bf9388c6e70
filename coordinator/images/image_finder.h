// SPDX-License-Identifier: Apache-2.0
// Finds the image for a request, and checks whether the image can be read now. The image may be of a job that
// this coordinator does not know. The job's id was then assigned by another store.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kNotFound if there is no image; kUnavailable if the image is in the checkpoint store of a disconnected
// node; kRefused.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/fleet/jobs.h"
#include "coordinator/images/image_catalog.h"

namespace ckpt::coordinator {

class ImageFinder {
 public:
  ImageFinder(const Store& store, const NodeTable& nodes, JobTable& jobs, const ImageCatalog& catalog)
      : store_(store), nodes_(nodes), jobs_(jobs), catalog_(catalog) {}

  // Returns whether a connected node has the image. For an image in a folder, any connected node suffices.
  [[nodiscard]] bool is_readable(const Image& image) const;
  // Returns the newest whole image that can be read and is not suspect.
  [[nodiscard]] std::optional<Image> newest(JobId job) const;
  // Returns the image from which an order of `verb` continues. This is `wanted` if set, otherwise the newest
  // image that is not suspect. Returns kRefused for an image of a set, from which no rank continues alone.
  [[nodiscard]] Result<Image> for_order(const Job& job, const std::string& verb,
                                        const std::optional<Image>& wanted = std::nullopt) const;

  // Checks that a job can continue from the image alone, without the other images of its set.
  [[nodiscard]] static Result<void> check_is_alone(const Image& image);

  // Returns the newest whole image of each job that this coordinator does not know.
  [[nodiscard]] std::vector<Image> of_unknown_jobs() const;
  // Returns the newest whole image of an unknown job, by its id or name, if a node reports that the job left
  // it. Errors: kNotFound; kRefused if the job may still run on a disconnected node, if several jobs
  // match, or for an image of a set.
  [[nodiscard]] Result<Image> of_unknown(const std::string& id_or_name) const;

 private:
  [[nodiscard]] Result<Image> choose(const Job& job, const std::string& verb,
                                     const std::optional<Image>& wanted) const;
  // Returns whether another store, used before this one, assigned the job's id.
  [[nodiscard]] bool is_unknown_job(JobId id) const;

  const Store& store_;
  const NodeTable& nodes_;
  JobTable& jobs_;
  const ImageCatalog& catalog_;
};

}  // namespace ckpt::coordinator
