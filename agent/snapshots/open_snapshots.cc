// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshots/open_snapshots.h"

namespace ckpt::agent::protect {

std::shared_ptr<SnapshotSession> OpenSnapshots::find(wire::JobId job) const {
  const auto found = sessions_.find(job);
  return found == sessions_.end() ? nullptr : found->second;
}

void OpenSnapshots::repeat_reports() const {
  for (const auto& [job, session] : sessions_)
    if (session->set() != 0) session->repeat_report();
}

Task<> OpenSnapshots::acquire_exclusive(wire::JobId job) {
  const auto session = find(job);
  if (session) co_await session->give_way();
}

}  // namespace ckpt::agent::protect
