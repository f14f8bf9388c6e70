// SPDX-License-Identifier: Apache-2.0
// Helpers that wait for a state of a migration, revision by revision.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/unit/coordinator/support/cluster.h"

namespace ckpt::coordinator::test {

// Returns the migration as soon as `done` is true for it. The test fails if that takes more than half a
// minute.
inline nlohmann::json migration_when(Cluster& cluster, const std::string& id,
                                     const std::function<bool(const nlohmann::json&)>& done) {
  std::uint64_t since = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (true) {
    const auto answer =
        cluster.get("/v1/migrations/" + id + "/watch?timeout_ms=30000&since=" + std::to_string(since));
    if (answer.status != 200) return answer.body;
    nlohmann::json migration = answer.json();
    if (done(migration)) return migration;
    if (std::chrono::steady_clock::now() >= until) {
      ADD_FAILURE() << "Migration " << id << " stays as it is: " << migration;
      return migration;
    }
    since = migration["revision"].get<std::uint64_t>();
  }
}

inline nlohmann::json closed_migration(Cluster& cluster, const std::string& id) {
  return migration_when(cluster, id, [](const nlohmann::json& m) { return !m["open"].get<bool>(); });
}

}  // namespace ckpt::coordinator::test
