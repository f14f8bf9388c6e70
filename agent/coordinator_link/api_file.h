// SPDX-License-Identifier: Apache-2.0
// The coordinator's api.json on the same machine: where it listens for agents, and with which token. Its
// owner may name no file of another user: an agent of root would read it and send it there.
// Threads: pure but for reading files. Errors: kInvalidArgument for what is no such file, kRefused for a
// token that is not its owner's alone, and those of reading.
#pragma once

#include <string>

#include "libckpt/base/result.h"

namespace ckpt::agent {

Result<std::string> address_in_api_file(const std::string& path);
Result<std::string> token_by_api_file(const std::string& path);
// The token in a file that the settings name.
Result<std::string> read_token(const std::string& path);

}  // namespace ckpt::agent
