// SPDX-License-Identifier: Apache-2.0
// Finds the image that a user's text means: its id (j3.v12@node-a), NAME#NUMBER (version NUMBER of the job),
// or NAME (the job's newest).
// Threads: one. Errors: kNotFound; kRefused if several are meant, naming them; those of the coordinator's client.
#pragma once

#include <string>
#include <vector>

#include "libckpt/api/image.h"
#include "tools/gpumigrate/client/coordinator_client.h"

namespace ckpt::cli {

// Whether it names an image: no job's name has an '@' or '#'.
bool is_image(const std::string& text);

// The id. `images`: all that there are. Pure.
Result<std::string> image_meant(const std::vector<api::Image>& images, const std::string& given);

// An id is not looked up.
Result<std::string> find_image(CoordinatorClient& coordinator, const std::string& given);

}  // namespace ckpt::cli
