// SPDX-License-Identifier: Apache-2.0
// CRIU's files.img, a record for each file, socket or pipe: some records become others.
// Threads: any. Errors: kCorrupt for a malformed image; kIo; those of the callback.
#pragma once

#include <functional>
#include <string>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// Gets each record and returns it, or another in its place.
using ChangeRecord = std::function<Result<std::string>(const std::string&)>;

// The bytes of files.img, changed.
Result<std::string> with_changed_records(const std::string& files, const ChangeRecord& change);
// That of the folder `images`.
Result<void> change_files_image(const std::string& images, const ChangeRecord& change);

}  // namespace ckpt::agent::host
