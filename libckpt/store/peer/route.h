// SPDX-License-Identifier: Apache-2.0
// Where a vault is: a folder here, with or without a tier in memory before it, or another node's. Every vault
// is opened through this.
// Threads: any. Errors: of vault.h; kUnavailable where another node cannot be reached.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libckpt/store/vault/vault.h"

namespace ckpt::vault {

struct Route {
  std::string folder;             // of another node: what it is called
  std::uint64_t limit_bytes = 0;  // 0: none
  std::string memory;             // the tier in memory; empty: there is none
  std::uint64_t memory_limit_bytes = 0;
  std::string peer_address;  // empty: the folder is here
  std::vector<std::byte> peer_token;
};

// The vault goes before its files.
struct OpenVault {
  std::unique_ptr<Files> files;  // null: the operating system's
  std::unique_ptr<Vault> vault;
};

// `settles`: a job with a next version that is to outlive this machine's power. Its packs in memory go to the
// disk first (of a vault that is here).
Result<OpenVault> open_vault(const Route& route, bool writable, const std::string& settles = {});

}  // namespace ckpt::vault
