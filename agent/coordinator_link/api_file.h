// SPDX-License-Identifier: Apache-2.0
// The coordinator's api.json on the same machine. It contains the address for agents and the token. The file
// may not name a file of another user. Otherwise an agent that runs as root would read that file and send its
// content to the address.
// Threads: any. The functions only read files. Errors: kInvalidArgument if the file is not an api.json.
// kRefused if other users can access a token. Errors of reading are returned unchanged.
#pragma once

#include <string>

#include "libckpt/base/result.h"

namespace ckpt::agent {

Result<std::string> address_in_api_file(const std::string& path);
Result<std::string> token_by_api_file(const std::string& path);
// Returns the token in a file that the settings name.
Result<std::string> read_token(const std::string& path);

}  // namespace ckpt::agent
