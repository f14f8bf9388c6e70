// SPDX-License-Identifier: Apache-2.0
// Helpers for lists that do not fit into one message.
// Threads: none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/inprocess/local/messages.h"

namespace ckpt::local {

// Calls send(batch) for every batch of up to kMaxRecords records.
template <class Batch, class Record, class Send>
Result<void> in_batches(const std::vector<Record>& records, Send send) {
  for (std::size_t at = 0; at < records.size(); at += kMaxRecords) {
    const std::size_t end = std::min(records.size(), at + kMaxRecords);
    CKPT_TRYV(send(Batch{{records.begin() + static_cast<std::ptrdiff_t>(at),
                          records.begin() + static_cast<std::ptrdiff_t>(end)}}));
  }
  return ok();
}

}  // namespace ckpt::local
