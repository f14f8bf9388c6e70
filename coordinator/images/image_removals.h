// SPDX-License-Identifier: Apache-2.0
// Removes images from the checkpoint stores: on request, and those of ended jobs by age and count
// (image_retention.h).
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kNotFound, kRefused; those of the checkpoint store's node. An image that cannot be collected now is retried
// later.
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

  // Starts the periodic collection. Call this once.
  void start();
  // Removes an image. With `force` this may be the image in which a job is parked.
  control::Task<Result<void>> remove(ImageId id, bool force);

 private:
  control::Task<> collect();
  control::Task<> sweep();
  void note_ends();

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
