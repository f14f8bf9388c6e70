// SPDX-License-Identifier: Apache-2.0
// The distance of this node's GPUs to each other, and the facts that placement needs of them. That is NUMA
// node, NVLinks, common ancestors, NVLink domain, MIG and row remapping. Every entry point may be missing and
// every answer may be "not supported": that is no statement, and no error. Threads: as nvml.h; the calls may
// block like all of NVML's. Ownership: borrows the loaded library, which is never unloaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ckpt::agent {

namespace nvml {
using Device = struct DeviceOpaque*;
}  // namespace nvml

struct GpuPeerFacts {
  friend bool operator==(const GpuPeerFacts&, const GpuPeerFacts&) = default;
  std::uint32_t index = 0;
  std::uint32_t nvlinks = 0;           // links that are up, to it or to a switch of both
  std::uint32_t common_ancestor = 50;  // NVML's number: 0 one board ... 50 across the machine
};

struct GpuTopology {
  std::int32_t numa_node = -1;  // -1: not known
  std::string fabric;           // "CLUSTER/CLIQUE" of the NVLink domain beyond the node; empty: none
  std::vector<GpuPeerFacts> peers;
  bool mig = false;
  bool remap_pending = false;
  bool remap_failed = false;
};

// A GPU that answered, and its number.
struct GpuHandle {
  GpuHandle(std::uint32_t number, nvml::Device handle, std::string pci)
      : index(number), device(handle), bus_id(std::move(pci)) {}
  std::uint32_t index;
  nvml::Device device;
  std::string bus_id;
};

class NvmlTopology {
 public:
  explicit NvmlTopology(void* library);
  ~NvmlTopology();
  NvmlTopology(NvmlTopology&&) noexcept;
  NvmlTopology& operator=(NvmlTopology&&) noexcept;

  // One for each of `gpus`, in their order.
  [[nodiscard]] std::vector<GpuTopology> read(const std::vector<GpuHandle>& gpus) const;

 private:
  struct Table;
  std::unique_ptr<Table> table_;
};

// The NUMA node of a PCI device ("00000000:3B:00.0", as NVML writes it), by /sys; -1 if none. `root` is for
// tests.
[[nodiscard]] std::int32_t numa_node_of(const std::string& bus_id,
                                        const std::string& root = "/sys/bus/pci/devices");

}  // namespace ckpt::agent
