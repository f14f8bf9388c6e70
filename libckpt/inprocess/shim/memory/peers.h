// SPDX-License-Identifier: Apache-2.0
// The table of peer access: the devices that may access the memory of each context or pool. The driver's
// switches (cuCtxEnablePeerAccess, cuMemPoolSetAccess) do not apply to virtual memory. Access is therefore
// granted to each allocation, present and future. Owners and users are identified by the address of their
// context or pool.
// Threads: no lock inside; the owner locks. No driver calls.
#pragma once

#include <cstdint>
#include <map>
#include <set>

namespace ckpt::shim {

class PeerTable {
 public:
  void enable(const void* user, int user_device, const void* owner);
  void disable(const void* user, const void* owner);
  // Removes a destroyed context or pool from the table, both as an owner and as a user.
  void forget(const void* one);

  // Returns the devices that may access the memory of `owner`.
  [[nodiscard]] std::set<int> devices_for(const void* owner) const;
  // Returns a number that increases with every change of the table.
  [[nodiscard]] std::uint64_t version() const { return version_; }

 private:
  std::map<const void*, std::map<const void*, int>> users_;  // the users of every owner, each with its device
  std::uint64_t version_ = 0;
};

}  // namespace ckpt::shim
