// SPDX-License-Identifier: Apache-2.0
// Finds a known GPU by its UUID, or by the PCI address of a line of the kernel log. The newest inventory
// is right. A card at an address where another one was takes the address over, and one that is not listed any
// more is gone. A card that NVML lists without a name keeps its place: it does not answer, but it is there.
// Threads: the event loop. Ownership: the list is the health record's, which outlives this. Errors: none.
#pragma once

#include <string>
#include <vector>

#include "agent/gpus/inventory.h"
#include "agent/health/health_record.h"
#include "libckpt/health/kernel_log.h"

namespace ckpt::agent {

class KnownGpus {
 public:
  explicit KnownGpus(std::vector<KnownGpu>& gpus) : gpus_(gpus) {}

  struct Changes {
    bool any = false;               // something to be kept
    bool cards = false;             // one has come
    std::vector<std::string> gone;  // UUIDs of those that have gone by now
  };
  // An inventory that the driver did not answer has no facts.
  Changes follow(const InventorySnapshot& newest);
  // The driver names the card at an address; counts only while the inventory has not named it. True:
  // something to be kept.
  bool identify(const health::PciAddress& address, const std::string& uuid);
  // A card that another one has replaced, once no finding about it is open.
  void forget_replaced(const std::string& uuid);

  // Null: none of this node's.
  [[nodiscard]] KnownGpu* of_uuid(const std::string& uuid) const;
  [[nodiscard]] KnownGpu* at(const health::PciAddress& address) const;
  [[nodiscard]] std::vector<KnownGpu>& all() const noexcept { return gpus_; }

 private:
  void take(const GpuFacts& facts, Changes& changes);
  void look_for_gone(const InventorySnapshot& newest, Changes& changes);

  std::vector<KnownGpu>& gpus_;
};

}  // namespace ckpt::agent
