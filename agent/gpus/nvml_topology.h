// SPDX-License-Identifier: Apache-2.0
// The distances between this node's GPUs, and the facts that placement needs about them: NUMA node, NVLinks,
// common ancestors, NVLink domain, MIG and row remapping. Every entry point may be missing and every answer
// may be "not supported". Both give no information and are not errors.
// Threads: as in nvml.h. The calls may block like all calls of NVML. Ownership: borrows the loaded library,
// which is never unloaded.
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
  std::uint32_t nvlinks = 0;           // number of active links to the GPU, or to a switch of both GPUs
  std::uint32_t common_ancestor = 50;  // NVML's number for the common ancestor, from 0 for GPUs on one board
                                       // to 50 for GPUs across the machine
};

struct GpuTopology {
  std::int32_t numa_node = -1;  // NUMA node of the GPU; -1 if unknown
  std::string fabric;  // "CLUSTER/CLIQUE" of the NVLink domain beyond the node; empty if there is none
  std::vector<GpuPeerFacts> peers;
  bool mig = false;
  bool remap_pending = false;
  bool remap_failed = false;
};

// The handle of a GPU that answered, and the GPU's number.
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

  // Returns one topology for each GPU of `gpus`, in their order.
  [[nodiscard]] std::vector<GpuTopology> read(const std::vector<GpuHandle>& gpus) const;

 private:
  struct Table;
  std::unique_ptr<Table> table_;
};

// Returns the NUMA node of a PCI device ("00000000:3B:00.0", as NVML writes it) from /sys, or -1 if there is
// none. Tests set `root` to a folder of their own.
[[nodiscard]] std::int32_t numa_node_of(const std::string& bus_id,
                                        const std::string& root = "/sys/bus/pci/devices");

}  // namespace ckpt::agent
