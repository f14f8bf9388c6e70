// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::wire {

std::vector<std::string> DataNetwork::addresses() const {
  std::vector<std::string> all{address};
  for (const std::string& next : more_addresses)
    if (all.size() < kMaxAddresses) all.push_back(next);
  return all;
}

}  // namespace ckpt::wire
