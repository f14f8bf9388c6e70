// SPDX-License-Identifier: Apache-2.0
#include "agent/health/known_gpus.h"

#include <algorithm>

namespace ckpt::agent {
namespace {

bool lists(const InventorySnapshot& inventory, const std::string& uuid) {
  return std::any_of(inventory.gpus.begin(), inventory.gpus.end(),
                     [&](const GpuFacts& facts) { return facts.uuid == uuid; });
}

const GpuFacts* numbered(const InventorySnapshot& inventory, std::uint32_t index) {
  const auto found = std::find_if(inventory.gpus.begin(), inventory.gpus.end(),
                                  [&](const GpuFacts& facts) { return facts.index == index; });
  return found == inventory.gpus.end() ? nullptr : &*found;
}

bool same_address(const std::string& a, const std::string& b) {
  const auto address = health::parse_pci(a);
  return address && address == health::parse_pci(b);
}

}  // namespace

KnownGpus::Changes KnownGpus::follow(const InventorySnapshot& newest) {
  Changes changes;
  if (!newest.problem.empty()) return changes;
  for (const GpuFacts& facts : newest.gpus) {
    if (!facts.uuid.empty()) update(facts, changes);
  }
  report_absent(newest, changes);
  changes.any = changes.any || changes.cards || !changes.gone.empty();
  return changes;
}

void KnownGpus::update(const GpuFacts& facts, Changes& changes) {
  KnownGpu* known = of_uuid(facts.uuid);
  if (known == nullptr || known->gone) {
    changes.cards = true;
    if (known == nullptr) known = &gpus_.emplace_back();
    *known = KnownGpu();  // old facts about a GPU that has returned are discarded
  }
  changes.any = changes.any || known->index != facts.index || known->bus_id != facts.bus_id ||
                known->model != facts.name;
  known->uuid = facts.uuid;
  known->index = facts.index;
  known->bus_id = facts.bus_id;
  known->model = facts.name;
}

void KnownGpus::report_absent(const InventorySnapshot& newest, Changes& changes) {
  for (KnownGpu& gpu : gpus_) {
    if (lists(newest, gpu.uuid)) continue;
    const GpuFacts* in_its_place = numbered(newest, gpu.index);
    const bool silent = in_its_place != nullptr && in_its_place->uuid.empty();
    if (!gpu.gone && silent) continue;
    if (!gpu.gone) changes.gone.push_back(gpu.uuid);
    gpu.gone = true;
    const auto takes_over = [&](const GpuFacts& facts) {
      return !facts.uuid.empty() && (facts.index == gpu.index || same_address(facts.bus_id, gpu.bus_id));
    };
    if (gpu.replaced || std::none_of(newest.gpus.begin(), newest.gpus.end(), takes_over)) continue;
    gpu.replaced = true;
    gpu.bus_id.clear();
    changes.any = true;
  }
}

bool KnownGpus::identify(const health::PciAddress& address, const std::string& uuid) {
  KnownGpu* gpu = of_uuid(uuid);
  if (gpu == nullptr || gpu->gone || !gpu->bus_id.empty() || at(address) != nullptr) return false;
  gpu->bus_id = address.to_string();
  return true;
}

void KnownGpus::erase_replaced(const std::string& uuid) {
  std::erase_if(gpus_, [&](const KnownGpu& gpu) { return gpu.uuid == uuid && gpu.gone && gpu.replaced; });
}

KnownGpu* KnownGpus::of_uuid(const std::string& uuid) const {
  for (KnownGpu& gpu : gpus_) {
    if (!uuid.empty() && gpu.uuid == uuid) return &gpu;
  }
  return nullptr;
}

KnownGpu* KnownGpus::at(const health::PciAddress& address) const {
  for (KnownGpu& gpu : gpus_) {
    if (health::parse_pci(gpu.bus_id) == address) return &gpu;
  }
  return nullptr;
}

}  // namespace ckpt::agent
