// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/io/peer.h"

#include <utility>

namespace ckpt::keeper {

Result<void> Peer::send(const local::Message& message, std::vector<UniqueFd> descriptors) {
  CKPT_TRY(bytes, local::encode(message));
  queue_.push_back({std::move(bytes), std::move(descriptors)});
  return flush();
}

Result<void> Peer::flush() {
  while (!queue_.empty()) {
    const Outgoing& next = queue_.front();
    std::vector<int> numbers;
    for (const UniqueFd& fd : next.descriptors) numbers.push_back(fd.get());
    CKPT_TRY(transfer, socket_.send_bytes(next.bytes, numbers));
    if (transfer == local::Transfer::kNothing) return ok();
    queue_.pop_front();
  }
  return ok();
}

}  // namespace ckpt::keeper
