// SPDX-License-Identifier: Apache-2.0
// Removes images from the vaults: by order, and those of ended jobs by age and count (image_retention.h).
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kNotFound, kRefused; those of the vault's node. An image that is not collected now is tried again later.
#pragma once

#include "coordinator/fleet/jobs.h"
#include "coordinator/fleet/node_calls.h"
#include "coordinator/images/image_catalog.h"
#include "coordinator/settings/config.h"
#include "coordinator/state/event_log.h"

namespace ckpt::coordinator {

class ImageRemovals {
 public:
  struct Dependencies {
    const Config& config;
    EventLog& events;
    NodeTable& nodes;
    NodeCalls& calls;
    JobTable& jobs;
    ImageCatalog& catalog;
    control::asio::any_io_executor executor;
  };
  explicit ImageRemovals(Dependencies deps) : deps_(std::move(deps)) {}

  // Once: collects from now on.
  void start();
  // `force`: also the image that a job rests in.
  control::Task<Result<void>> remove(ImageId id, bool force);

 private:
  control::Task<> collect();
  control::Task<> sweep();
  void note_ends();

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
