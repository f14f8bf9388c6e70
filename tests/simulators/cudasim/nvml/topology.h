// SPDX-License-Identifier: Apache-2.0
// How the software devices of a machine are connected: the file `topology` in the state folder. The file is
// read at every query, so that a test may change it. Without the file all devices are attached to one host
// bridge of NUMA node 0 and have no NVLink. Each line has one statement, and # begins a comment:
//
//   numa DEVICE NODE             nearest memory; -1: the driver does not report it
//   nvlink DEVICE DEVICE LINKS   direct links between two devices
//   switch DEVICE LINKS          links to the machine's NVLink switch
//   ancestor DEVICE DEVICE LEVEL as NVML counts: 0, 10, 20, 30, 40, 50
//   fabric DEVICE HEX CLIQUE     cluster (32 hexadecimal digits) and clique of an NVLink domain beyond the
//                                machine
//   mig DEVICE                   MIG mode is on
//
// Threads: all functions are pure except for reading the file. Errors: a line of another form is ignored.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulators/cudasim/nvml/nvml.h"

namespace cudasim::nvml {

inline constexpr int kTheSwitch = -1;  // far end of a link to the NVLink switch

struct Fabric {
  std::array<std::uint8_t, 16> cluster{};
  std::uint32_t clique = 0;
};

struct Topology {
  std::map<int, int> numa_nodes;
  std::map<std::pair<int, int>, int> ancestors;  // pairs with the smaller device first
  std::map<int, std::vector<int>> links;         // for each device, the far end of each link
  std::map<int, Fabric> fabrics;
  std::set<int> mig;
};

Topology parse_topology(const std::string& text);
// Reads the topology of this process's state folder.
Topology read_topology();

// Returns the index of the device of a handle, or the error. describe_pci() returns a device's PCI address.
// nvml.cc defines both functions.
Return find_device(void* handle, int* index);
void describe_pci(int index, PciInfo* info);

}  // namespace cudasim::nvml
