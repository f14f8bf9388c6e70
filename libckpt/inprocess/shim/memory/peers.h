// SPDX-License-Identifier: Apache-2.0
// The table of peer access: the devices that may reach the memory of each context or pool. The driver's
// switches (cuCtxEnablePeerAccess, cuMemPoolSetAccess) do not reach virtual memory. So the access is granted
// to each allocation, present and future. Owners and users are known by the address of their context or pool.
// Threads: none inside; the owner locks. No driver calls.
#pragma once

#include <cstdint>
#include <map>
#include <set>

namespace ckpt::shim {

class PeerTable {
 public:
  void enable(const void* user, int user_device, const void* owner);
  void disable(const void* user, const void* owner);
  // A context or pool is gone.
  void forget(const void* one);

  // The devices that may reach the memory of `owner`.
  [[nodiscard]] std::set<int> devices_for(const void* owner) const;
  // Grows with every change.
  [[nodiscard]] std::uint64_t version() const { return version_; }

 private:
  std::map<const void*, std::map<const void*, int>> users_;  // by owner: the user's device
  std::uint64_t version_ = 0;
};

}  // namespace ckpt::shim
