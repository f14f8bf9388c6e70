// SPDX-License-Identifier: Apache-2.0
// The location of a vault: a folder here, with or without a memory tier, or another node's vault. Every vault
// is opened through this header.
// Threads: any. Errors: those of vault.h; kUnavailable if another node cannot be reached.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libckpt/store/vault/vault.h"

namespace ckpt::vault {

struct Route {
  std::string folder;             // the folder; for another node's vault, its name here
  std::uint64_t limit_bytes = 0;  // the limit; 0 if there is none
  std::string memory;             // the folder of the memory tier; empty if there is none
  std::uint64_t memory_limit_bytes = 0;
  std::string peer_address;  // empty if the folder is on this node
  std::vector<std::byte> peer_token;
};

// An open vault and its files. The vault is destroyed before its files.
struct OpenVault {
  std::unique_ptr<Files> files;  // null for the operating system's files
  std::unique_ptr<Vault> vault;
};

// Opens a vault. `settles` is a job whose next version must survive a power failure of this machine. Its
// packs in memory are first moved to the disk (only for a vault on this node).
Result<OpenVault> open_vault(const Route& route, bool writable, const std::string& settles = {});

}  // namespace ckpt::vault
