// SPDX-License-Identifier: Apache-2.0
// The two sets of device memory that a keeper holds for its rank. One set is the memory that the rank has
// exported. The other set is the memory that an agent has deposited for one migration. This class answers
// requests that do not need the rank.
// Threads: one. Ownership: the descriptors of both sets. Errors: kRefused if the set does not exist.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/keeper/memory/memory_bank.h"
#include "libckpt/base/result.h"
#include "libckpt/inprocess/local/messages.h"
#include "libckpt/inprocess/local/socket.h"

namespace ckpt::keeper {

class MemorySets {
 public:
  [[nodiscard]] MemoryBank& exported() { return exported_; }
  [[nodiscard]] const MemoryBank& exported() const { return exported_; }
  [[nodiscard]] const MemoryBank& arrived() const { return arrived_; }
  [[nodiscard]] std::uint64_t arrived_migration() const { return arrived_migration_; }
  // Returns a set, or null for a migration of which nothing has arrived. kExported always exists.
  [[nodiscard]] const MemoryBank* find(local::MemorySet set, std::uint64_t migration) const;

  // Stores a deposit. Another migration's deposit replaces all arrived memory.
  Result<void> deposit(const local::Received& received);
  void withdraw(std::uint64_t migration);
  void withdraw_regions(const local::WithdrawRegions& gone);
  // Replaces the memory of a set with memory that the rank has created.
  Result<void> replace(const local::Received& received);
  // The next part of a set, with the largest regions first. Therefore no part has more bytes than the first
  // region, for which two copies must fit in any case. A part without records marks the end of the set.
  struct Part {
    local::Held held;
    std::vector<UniqueFd> descriptors;
  };
  Result<Part> fetch(const local::Fetch& fetch);
  void clear();

 private:
  MemoryBank exported_;
  MemoryBank arrived_;
  std::uint64_t arrived_migration_ = 0;
  std::vector<std::uint64_t> fetch_order_;  // regions of the set that is being fetched
};

}  // namespace ckpt::keeper
