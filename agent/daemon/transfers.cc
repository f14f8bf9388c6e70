// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/transfers.h"

namespace ckpt::agent {

void Transfers::drop_closed(const Open& is_open) {
  std::erase_if(last_, [&is_open](const auto& entry) { return !is_open(entry.first); });
}

bool Transfers::send(const wire::MigrationProgress& progress) {
  wire::MigrationProgress& before = last_[progress.migration];
  if (progress.sent_bytes > before.sent_bytes) sent_bytes_ += progress.sent_bytes - before.sent_bytes;
  before = progress;
  return coordinator_.send(progress);
}

}  // namespace ckpt::agent
