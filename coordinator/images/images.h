// SPDX-License-Identifier: Apache-2.0
// The interface of images for the rest of the coordinator (evacuation, drains, overcommit), which hides
// checkpoint stores.
// Threads: one io_context on one thread. Ownership: the coordinator's. Errors: kNotFound if there is no
// image; kRefused if it is not possible, with the reason; kUnavailable if a node is disconnected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/state/restored.h"
#include "libckpt/net/control/asio.h"

namespace ckpt::coordinator {

class Images {
 public:
  virtual ~Images() = default;
  // Returns the newest whole image that a connected node can read, or nullopt if there is none.
  [[nodiscard]] virtual std::optional<Image> newest(JobId job) const = 0;
  // Ends the remaining instance of the job permanently, and then starts the job from its newest image as the
  // next incarnation. An instance that cannot be reached must be known to have ended, otherwise kRefused is
  // returned. Without `to`, placement chooses the target. Returns kUnavailable if no GPU has the memory.
  virtual control::Task<Result<Restored>> restore(JobId job, std::optional<Place> to, std::string reason) = 0;
  // Returns whether park() may be called for the job. It may not if other ranks would have to be parked as
  // well.
  [[nodiscard]] virtual bool may_park(JobId) const { return true; }
  // Parks the job in its newest image until a GPU has the memory. Adds an event, and sets the state "parked".
  // With `snapshot`, takes an image first, for which the job must run.
  virtual control::Task<Result<void>> park(JobId job, bool snapshot, std::string reason) = 0;
};

}  // namespace ckpt::coordinator
