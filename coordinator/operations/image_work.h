// SPDX-License-Identifier: Apache-2.0
// Open operations on a job's images, which give way to other orders.
// Threads: one io_context on one thread. Errors: the store's.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/state/model.h"

namespace ckpt::coordinator {

class ImageWork {
 public:
  virtual ~ImageWork() = default;
  // Has a job's last snapshot given up, so that it runs on; false: it cannot be, or not any more. The
  // operation ends a moment later.
  virtual bool give_up_parking(JobId id, const std::string& reason) = 0;
};

}  // namespace ckpt::coordinator
