// SPDX-License-Identifier: Apache-2.0
// Finds a known GPU by its UUID, or by the PCI address in a line of the kernel log. The newest inventory is
// authoritative. A card at another card's address takes over the address, and an unlisted card counts as
// removed. A card that NVML lists without a name keeps its place, because it does not answer but is present.
// Threads: the event loop. Ownership: the list belongs to the health record, which outlives this class.
// Errors: none.
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
    bool any = false;               // true if any entry changed, so that the record must be stored
    bool cards = false;             // true if a card was added
    std::vector<std::string> gone;  // UUIDs of the cards that were removed
  };
  // Updates the list from the newest inventory. An inventory for which the driver gave no answer changes
  // nothing.
  Changes follow(const InventorySnapshot& newest);
  // Records the driver's name for the card at an address. The name counts only while the inventory has not
  // named the card. Returns true if the record must be stored.
  bool identify(const health::PciAddress& address, const std::string& uuid);
  // Removes a replaced card after all findings about it are closed.
  void erase_replaced(const std::string& uuid);

  // Returns the known GPU, or null if it is not a GPU of this node.
  [[nodiscard]] KnownGpu* of_uuid(const std::string& uuid) const;
  [[nodiscard]] KnownGpu* at(const health::PciAddress& address) const;
  [[nodiscard]] std::vector<KnownGpu>& all() const noexcept { return gpus_; }

 private:
  void update(const GpuFacts& facts, Changes& changes);
  void report_absent(const InventorySnapshot& newest, Changes& changes);

  std::vector<KnownGpu>& gpus_;
};

}  // namespace ckpt::agent
