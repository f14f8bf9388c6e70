// SPDX-License-Identifier: Apache-2.0
// The interface to open operations on a job's images, which yield to other orders.
// Threads: one io_context on one thread. Errors: the store's.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

class ImageWork {
 public:
  virtual ~ImageWork() = default;
  // Cancels a job's last snapshot, so that the job continues to run. Returns false if that is not, or no
  // longer, possible. The operation ends shortly afterwards.
  virtual bool give_up_parking(JobId id, const std::string& reason) = 0;
};

}  // namespace ckpt::coordinator
