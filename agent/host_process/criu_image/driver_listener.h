// SPDX-License-Identifier: Apache-2.0
// The CUDA driver of a program listens at an abstract Unix name that holds its process number, also while it
// is checkpointed. A copy that is restored beside the stopped original, in one network, cannot bind that
// name. Its image gets another name, which is safe: no process can be connected to it.
// Threads: any. Errors: kCorrupt for a malformed image; kIo.
#pragma once

#include <functional>
#include <string>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// Changes names that are taken in this process's network. Called at the target, before a restore from the
// folder `images`.
Result<void> free_driver_names(const std::string& images);

// Returns the changed bytes of files.img. IsTaken gets the name without its leading zero byte; OtherName
// returns the new text behind "cuda-uvmfd-". Used by tests.
using IsTaken = std::function<bool(const std::string&)>;
using OtherName = std::function<std::string()>;
Result<std::string> with_free_driver_names(const std::string& files, const IsTaken& is_taken,
                                           const OtherName& other);

}  // namespace ckpt::agent::host
