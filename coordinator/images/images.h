// SPDX-License-Identifier: Apache-2.0
// The interface of images for the rest of the coordinator (evacuation, drains, overcommit), without vaults.
// Threads: one io_context on one thread. Ownership: the coordinator's. Errors: kNotFound: there is no image;
// kRefused: not possible, with the reason; kUnavailable: a node is away.
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
  // The newest whole image that a node which is connected can read; nullopt if there is none.
  [[nodiscard]] virtual std::optional<Image> newest(JobId job) const = 0;
  // Ends what is left of the job's instance for good (an instance that cannot be reached must be known to be
  // dead: kRefused otherwise), then starts the job from its newest image as the next incarnation. Without
  // `to` placement chooses. kUnavailable: no GPU has the memory.
  virtual control::Task<Result<Restored>> restore(JobId job, std::optional<Place> to, std::string reason) = 0;
  // The job rests in its newest image until a GPU has the memory: an event, state "parked". `snapshot` takes
  // one first (the job must run).
  virtual control::Task<Result<void>> park(JobId job, bool snapshot, std::string reason) = 0;
};

}  // namespace ckpt::coordinator
