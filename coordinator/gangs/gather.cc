// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/gather.h"

#include <algorithm>

namespace ckpt::coordinator {

bool Gather::is_agreed() const {
  return std::all_of(promised_.begin(), promised_.end(), [](bool promised) { return promised; });
}

void Gather::counted(std::size_t rank, std::uint64_t stop_at, std::uint64_t barriers) {
  if (barriers < barrier_) {
    if (stop_at == barrier_) promised_[rank] = true;
    return;
  }
  barrier_ = barriers + 1;
  std::fill(promised_.begin(), promised_.end(), false);
}

}  // namespace ckpt::coordinator
