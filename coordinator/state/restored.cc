// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/restored.h"

namespace ckpt::coordinator {

std::string image_text(const Image& image) {
  return job_text(image.job) + ".v" + std::to_string(image.version) + "@" +
         (image.folder.empty() ? image.node : image.folder);
}

}  // namespace ckpt::coordinator
