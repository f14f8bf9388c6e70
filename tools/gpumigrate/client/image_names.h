// SPDX-License-Identifier: Apache-2.0
// Finds the image that a user's text names. The text is an id (j3.v12@node-a), NAME#NUMBER (version NUMBER of
// the job), or NAME (the job's newest image).
// Threads: one. Errors: kNotFound; kRefused if the text names several images, which the error lists; those of
// the coordinator's client.
#pragma once

#include <string>
#include <vector>

#include "libckpt/api/image.h"
#include "tools/gpumigrate/client/coordinator_client.h"

namespace ckpt::cli {

// Returns whether the text names an image. No job's name contains '@' or '#'.
bool is_image(const std::string& text);

// Returns the id of the image that `given` names among `images`, all images of the cluster.
// Threads: pure function.
Result<std::string> image_meant(const std::vector<api::Image>& images, const std::string& given);

// Queries the coordinator for the images, unless `given` is an id. An id is returned without a query.
Result<std::string> find_image(CoordinatorClient& coordinator, const std::string& given);

}  // namespace ckpt::cli
