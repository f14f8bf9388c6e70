// SPDX-License-Identifier: Apache-2.0
// The image from which an instance was started, recorded in the instance's folder. The report is written
// before the instance runs. Therefore this agent or a later one can send the report together with the fact
// that the instance runs.
// Threads: any. Errors: kNotFound if the instance was not started from an image. kCorrupt, kIo.
#pragma once

#include <string>

#include "libckpt/protocol/wire/image_messages.h"

namespace ckpt::agent::protect {

// Writes the report, which is durable when the function returns.
Result<void> write_restore_report(const std::string& instance_folder, const wire::RestoreReport& report);
Result<wire::RestoreReport> read_restore_report(const std::string& instance_folder);

}  // namespace ckpt::agent::protect
