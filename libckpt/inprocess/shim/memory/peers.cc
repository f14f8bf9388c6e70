// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/memory/peers.h"

namespace ckpt::shim {

void PeerTable::enable(const void* user, int user_device, const void* owner) {
  users_[owner][user] = user_device;
  ++version_;
}

void PeerTable::disable(const void* user, const void* owner) {
  users_[owner].erase(user);
  ++version_;
}

void PeerTable::forget(const void* one) {
  users_.erase(one);
  for (auto& [owner, users] : users_) users.erase(one);
  ++version_;
}

std::set<int> PeerTable::devices_for(const void* owner) const {
  std::set<int> devices;
  const auto found = users_.find(owner);
  if (found == users_.end()) return devices;
  for (const auto& [user, device] : found->second) devices.insert(device);
  return devices;
}

}  // namespace ckpt::shim
