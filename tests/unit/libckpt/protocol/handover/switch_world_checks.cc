// SPDX-License-Identifier: Apache-2.0
// Checks of the properties that must hold in the world of switch_world.h, and its state as text.
#include <algorithm>

#include "tests/unit/libckpt/protocol/handover/switch_world.h"

namespace ckpt::migration::test {
// ---- properties ----
int World::running() const {
  return static_cast<int>(std::count_if(instances_.begin(), instances_.end(),
                                        [this](const auto& entry) { return is_on(entry.second); }));
}
bool World::runs_on(int node) const {
  return std::any_of(instances_.begin(), instances_.end(),
                     [&](const auto& entry) { return entry.first.first == node && is_on(entry.second); });
}

void World::check() {
  if (running() > 1) violate("two instances run");
}

void World::violate(const std::string& what) {
  if (violation_.empty())
    violation_ = what + " at " + std::to_string(now_ / kNanosPerMs) + " ms: " + summary();
  note(kCoordinatorNode, "VIOLATION " + what);
}

bool World::goal() const {
  if (running() == 1 || job_dead_ || finished_as_ != 0) return true;
  if (places_.empty()) return images() == 0;
  const auto [id, place] = *places_.rbegin();
  if (instance_died_ && ran_target_.contains(id))
    return true;  // the instance ran and died on the target, and its RUNS arrived late
  bool usable = false;
  if (up(place.source)) {
    const auto* s = agents_[place.source]->source(id);
    const bool released = s && std::holds_alternative<source::Released>(s->phase);
    usable = !released && owner_instance(place.source) != nullptr;
  }
  if (up(place.target)) {
    const auto* t = agents_[place.target]->target(id);
    const auto* held = instance(place.target, id);
    usable = usable || (t && held && held->image && !std::holds_alternative<target::Relinquished>(t->phase));
  }
  return !usable;
}

std::string World::summary() const {
  std::string text = "running " + std::to_string(running());
  for (const auto& [id, place] : places_) {
    if (id + 2 < next_id_) continue;
    text += "; m" + std::to_string(id) + " " + kNodeNames[place.source] + ">" + kNodeNames[place.target];
    const auto* c = up(kCoordinatorNode) ? coordinator_->find(id) : nullptr;
    const auto* s = up(place.source) ? agents_[place.source]->source(id) : nullptr;
    const auto* t = up(place.target) ? agents_[place.target]->target(id) : nullptr;
    text += " C:" + std::string(c ? phase_name(*c) : "-") + " S:" + std::string(s ? phase_name(*s) : "-") +
            " T:" + std::string(t ? phase_name(*t) : "-");
  }
  for (const auto& [where, instance] : instances_)
    text += "; " + std::string(kNodeNames[where.first]) + "/" + std::to_string(where.second) + " k" +
            std::to_string(instance.k) + (instance.image ? " image" : "") + (is_on(instance) ? " on" : "");
  return text;
}

void World::note(int node, const std::string& what) {
  if (tracing_)
    trace_.push_back(std::to_string(now_ / kNanosPerMs) + " " + std::string(kNodeNames[node]) + ": " + what);
}

}  // namespace ckpt::migration::test
