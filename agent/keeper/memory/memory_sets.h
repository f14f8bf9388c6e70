// SPDX-License-Identifier: Apache-2.0
// The two sets of device memory that a keeper holds for its rank. One is the memory that the rank has
// exported, the other the memory that an agent has deposited for one migration. Requests that need no rank
// are answered here.
// Threads: one. Ownership: the descriptors of both sets. Errors: kRefused where there is no such set.
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
  // Returns null for a migration of which nothing has arrived. kExported is always there.
  [[nodiscard]] const MemoryBank* find(local::MemorySet set, std::uint64_t migration) const;

  // Takes a deposit. Another migration's deposit replaces all that has arrived.
  Result<void> deposit(const local::Received& received);
  void withdraw(std::uint64_t migration);
  void withdraw_regions(const local::WithdrawRegions& gone);
  // Puts memory that the rank has made in the place of a set's.
  Result<void> replace(const local::Received& received);
  // The next part of a set, largest first: then no part holds more than the first region alone, which has to
  // be there twice in any case. No records: that was all.
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
