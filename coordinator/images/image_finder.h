// SPDX-License-Identifier: Apache-2.0
// Finds the image that a request means, and whether it can be read now. It may be of a job that this
// coordinator does not know: then the job's id is another store's.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kNotFound: there is no image; kUnavailable: it is in the vault of a node that is away; kRefused.
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

  // A node that is connected has it, or a folder that any has.
  [[nodiscard]] bool is_readable(const Image& image) const;
  // The newest whole one that can be read and is not suspect.
  [[nodiscard]] std::optional<Image> newest(JobId job) const;
  // The image that an order of `verb` continues from; `wanted`: the one that it names, else the newest that is not
  // suspect.
  [[nodiscard]] Result<Image> for_order(const Job& job, const std::string& verb,
                                        const std::optional<Image>& wanted = std::nullopt) const;

  // The newest whole image of each job that this coordinator does not know.
  [[nodiscard]] std::vector<Image> of_unknown_jobs() const;
  // The newest whole image of a job that this coordinator does not know, by its id or name, where a node
  // reports that the job left it. kNotFound; kRefused where it may still run on a node that is not connected,
  // or where several jobs are meant.
  [[nodiscard]] Result<Image> of_unknown(const std::string& id_or_name) const;

 private:
  // Another store gave its id: that of before this one.
  [[nodiscard]] bool is_unknown_job(JobId id) const;

  const Store& store_;
  const NodeTable& nodes_;
  JobTable& jobs_;
  const ImageCatalog& catalog_;
};

}  // namespace ckpt::coordinator
