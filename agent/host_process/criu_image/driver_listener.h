// SPDX-License-Identifier: Apache-2.0
// The CUDA driver of a program listens at an abstract Unix name that contains its process number, even while
// the program is checkpointed. A copy that is restored in the same network as the stopped original cannot
// bind that name. The copy's image therefore gets another name. The change is safe, because no process can be
// connected to the name.
// Threads: any. Errors: kCorrupt for a malformed image. kIo.
#pragma once

#include <functional>
#include <string>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

// Changes the names that are already taken in this process's network. Call this function at the target,
// before a restore from the folder `images`.
Result<void> free_driver_names(const std::string& images);

// Returns the changed bytes of files.img. IsTaken receives the name without its leading zero byte. OtherName
// returns the new text after "cuda-uvmfd-". Tests call this function.
using IsTaken = std::function<bool(const std::string&)>;
using OtherName = std::function<std::string()>;
Result<std::string> with_free_driver_names(const std::string& files, const IsTaken& is_taken,
                                           const OtherName& other);

}  // namespace ckpt::agent::host
