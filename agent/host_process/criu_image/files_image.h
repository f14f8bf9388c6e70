// SPDX-License-Identifier: Apache-2.0
// Replaces records of CRIU's files.img, which has one record for each file, socket or pipe.
// Threads: any. Errors: kCorrupt for a malformed image, kIo, and the callback's errors.
#pragma once

#include <functional>
#include <string>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// A function that receives each record and returns the same record or a replacement.
using ChangeRecord = std::function<Result<std::string>(const std::string&)>;

// Returns the bytes of files.img with the records that the callback returned.
Result<std::string> with_changed_records(const std::string& files, const ChangeRecord& change);
// Calls the callback for the records of files.img in the folder `images`, and writes the changed file.
Result<void> change_files_image(const std::string& images, const ChangeRecord& change);

}  // namespace ckpt::agent::host
