// SPDX-License-Identifier: Apache-2.0
#include "libckpt/runner/remote_messages.h"

#include <algorithm>

namespace ckpt::runner {

RemoteMessages::Verdict RemoteMessages::add(wire::MigrationId migration) {
  const auto own = of_migration_.find(migration);
  const std::size_t waiting = own == of_migration_.end() ? 0 : own->second;
  if (waiting >= limits_.of_migration) return {};
  Verdict verdict{true, {}};
  if (in_all_ >= limits_.in_all) {
    const auto largest = std::max_element(of_migration_.begin(), of_migration_.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
    if (largest == of_migration_.end() || largest->second < waiting + 1) return {};
    verdict.loses_newest = largest->first;
    remove(*verdict.loses_newest);
  }
  ++of_migration_[migration];
  ++in_all_;
  return verdict;
}

void RemoteMessages::remove(wire::MigrationId migration) {
  const auto of = of_migration_.find(migration);
  if (of == of_migration_.end()) return;
  if (--of->second == 0) of_migration_.erase(of);
  --in_all_;
}

}  // namespace ckpt::runner
