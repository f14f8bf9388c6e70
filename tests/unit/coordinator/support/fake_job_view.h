// SPDX-License-Identifier: Apache-2.0
// The cluster around a job, as a test sets it.
// Threads: one. Ownership: everything that it returns pointers to.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/lifecycle/job_view.h"

namespace ckpt::coordinator {

struct FakeView : lifecycle::JobView {
  std::optional<Migration> open;
  bool closing = false;
  std::set<std::string> away;
  std::map<std::string, std::vector<wire::JobInstance>> instances;  // instances by node
  std::map<std::string, Image, std::less<>> images;                 // images by name
  [[nodiscard]] bool connected(const std::string& node) const override { return !away.contains(node); }
  [[nodiscard]] const wire::JobInstance* instance(const std::string& node, JobId job,
                                                  Incarnation incarnation) const override {
    for (const lifecycle::SeenInstance& one : seen(job))
      if (one.node == node && one.instance->incarnation == incarnation) return one.instance;
    return nullptr;
  }
  [[nodiscard]] std::vector<lifecycle::SeenInstance> seen(JobId job) const override {
    std::vector<lifecycle::SeenInstance> found;
    for (const auto& [node, list] : instances)
      for (const wire::JobInstance& one : list)
        if (one.job == job) found.push_back({node, connected(node), &one});
    return found;
  }
  [[nodiscard]] const Migration* open_migration(JobId) const override { return open ? &*open : nullptr; }
  [[nodiscard]] bool is_closing(JobId) const override { return closing; }
  [[nodiscard]] std::optional<Image> image(std::string_view name) const override {
    const auto at = images.find(name);
    return at == images.end() ? std::nullopt : std::optional(at->second);
  }
  [[nodiscard]] std::int64_t image_timeout_ms() const override { return 60'000; }
};

}  // namespace ckpt::coordinator
