// SPDX-License-Identifier: Apache-2.0
// The files of a cluster's certificate authority and of the certificates that it signs. An authority is a
// folder with ca.pem and ca.key.
// Threads: one. Errors: those of Authority, and kIo for files. Calls block on disk I/O.
#pragma once

#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/ca/authority.h"

namespace ckpt::tls {

// Creates the authority if the folder has none. Returns true if the authority is new.
Result<bool> obtain_authority(const std::string& folder);
// Writes FOLDER/NAME.pem and FOLDER/NAME.key and replaces existing files (replace_pair()).
Result<void> write_pair(const std::string& folder, const std::string& name, const Issued& issued);
// Signs a new pair and writes it to `out`, together with a copy of the authority's ca.pem. Creates `out` with
// access for its owner only.
Result<void> issue(const std::string& authority_folder, const Authority::Order& order, const std::string& out,
                   const std::string& name);

}  // namespace ckpt::tls
