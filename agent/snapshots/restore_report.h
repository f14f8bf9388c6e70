// SPDX-License-Identifier: Apache-2.0
// The image from which an instance was started, in the instance's folder. Written before the instance runs.
// So this agent or a later one can report it together with the fact that the instance runs.
// Threads: any. Errors: kNotFound: it was started from none; kCorrupt, kIo.
#pragma once

#include <string>

#include "libckpt/protocol/wire/image_messages.h"

namespace ckpt::agent::protect {

// Writes the report; it is on the disk when this returns.
Result<void> write_restore_report(const std::string& instance_folder, const wire::RestoreReport& report);
Result<wire::RestoreReport> read_restore_report(const std::string& instance_folder);

}  // namespace ckpt::agent::protect
