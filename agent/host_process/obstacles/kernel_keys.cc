// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/obstacles/kernel_keys.h"

#include <cstdlib>
#include <sstream>

#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxKeysText = 16u << 20;

}  // namespace

// Finds a user's process keyrings in the kernel's list. A line has the form "18f1d3a3 I--Q---     1 perm
// 3f010000     0     0 keyring   _pid: 1". The line of an empty keyring ends in "empty".
std::vector<std::string> process_keyrings(const std::string& keys, uid_t uid) {
  std::vector<std::string> found;
  std::istringstream lines(keys);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string serial, flags, usage, expiry, rights, user, group, kind, name, count;
    if (!(words >> serial >> flags >> usage >> expiry >> rights >> user >> group >> kind >> name >> count))
      continue;
    const bool of_process = name == "_pid:" || name == "_tid:";
    if (kind == "keyring" && of_process && count != "empty" && std::strtoul(user.c_str(), nullptr, 10) == uid)
      found.push_back(serial);
  }
  return found;
}

std::vector<std::string> key_rings_of(const NameOwner& owner) {
  std::vector<std::string> found;
  if (!owner.is_alone || owner.since_unix_ms == kNeverMs) return found;
  const auto keys = read_file("/proc/keys", kMaxKeysText);
  if (!keys.has_value()) return found;
  for (const std::string& serial : process_keyrings(*keys, owner.uid))
    found.push_back("the kernel's keyring 0x" + serial +
                    " belongs to a process that may be part of the job, and holds keys that would be lost: "
                    "let the program revoke the keys before the move (keyctl clear)");
  return found;
}

}  // namespace ckpt::agent::host
