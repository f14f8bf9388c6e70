// SPDX-License-Identifier: Apache-2.0
// The files of a cluster's certificate authority, and those that it signs. An authority is a folder with ca.pem
// and ca.key.
// Threads: one. Errors: those of Authority; kIo for files. Blocks for the disk.
#pragma once

#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/ca/authority.h"

namespace ckpt::tls {

// Makes the authority if the folder has none. True: it is new.
Result<bool> obtain_authority(const std::string& folder);
// FOLDER/NAME.pem and FOLDER/NAME.key, in place of those that are there (replace_pair()).
Result<void> write_pair(const std::string& folder, const std::string& name, const Issued& issued);
// Signs a new pair and writes it to `out`, beside a copy of the authority's ca.pem. Makes `out` for its owner alone.
Result<void> issue(const std::string& authority_folder, const Authority::Order& order, const std::string& out,
                   const std::string& name);

}  // namespace ckpt::tls
