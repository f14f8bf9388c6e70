// SPDX-License-Identifier: Apache-2.0
// NVML's queries about the connections of devices.
#include <algorithm>
#include <cstring>
#include <string>

#include "tests/simulators/cudasim/nvml/topology.h"

namespace {

using namespace cudasim::nvml;

constexpr std::uint32_t kFabricVersion3 = 40 | 3U << 24;
constexpr std::uint8_t kFabricNotSupported = 0;
constexpr std::uint8_t kFabricComplete = 3;
constexpr const char* kSwitchBusId = "00000000:C0:00.0";

struct FabricInfo {
  std::uint32_t version;
  std::uint8_t cluster[16];
  std::int32_t status;
  std::uint32_t clique;
  std::uint8_t state;
  std::uint32_t health_mask;
  std::uint8_t health_summary;
};
static_assert(sizeof(FabricInfo) == 40);

// Finds the far end of a link, or returns the error.
Return find_link(void* device, unsigned link, int* far_end) {
  int index = -1;
  const Return state = find_device(device, &index);
  if (state != kSuccess) return state;
  const Topology topology = read_topology();
  const auto links = topology.links.find(index);
  if (links == topology.links.end()) return kNotSupported;
  if (link >= links->second.size()) return kInvalidArgument;
  *far_end = links->second[link];
  return kSuccess;
}

}  // namespace

extern "C" {

Return nvmlDeviceGetTopologyCommonAncestor(void* one, void* other, int* level) {
  constexpr int kInternal = 0;
  constexpr int kHostBridge = 30;
  int first = -1;
  int second = -1;
  Return state = find_device(one, &first);
  if (state == kSuccess) state = find_device(other, &second);
  if (state != kSuccess) return state;
  if (level == nullptr) return kInvalidArgument;
  const Topology topology = read_topology();
  const auto said = topology.ancestors.find(std::minmax(first, second));
  const bool apart = said == topology.ancestors.end();
  *level = first == second ? kInternal : apart ? kHostBridge : said->second;
  return kSuccess;
}

Return nvmlDeviceGetMemoryAffinity(void* device, unsigned words, unsigned long* nodes, int scope) {
  constexpr int kBits = 64;
  int index = -1;
  const Return state = find_device(device, &index);
  if (state != kSuccess) return state;
  if (words == 0 || nodes == nullptr || scope < 0 || scope > 1) return kInvalidArgument;
  const Topology topology = read_topology();
  const auto said = topology.numa_nodes.find(index);
  const int node = said == topology.numa_nodes.end() ? 0 : said->second;
  if (node < 0) return kNotSupported;
  if (node >= static_cast<int>(words) * kBits) return kInsufficientSize;
  std::memset(nodes, 0, words * sizeof *nodes);
  nodes[node / kBits] = 1UL << (node % kBits);
  return kSuccess;
}

Return nvmlDeviceGetNvLinkState(void* device, unsigned link, int* active) {
  int far_end = 0;
  const Return state = find_link(device, link, &far_end);
  if (state != kSuccess) return state;
  if (active == nullptr) return kInvalidArgument;
  *active = 1;
  return kSuccess;
}

Return nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, PciInfo* info) {
  int far_end = 0;
  const Return state = find_link(device, link, &far_end);
  if (state != kSuccess) return state;
  if (info == nullptr) return kInvalidArgument;
  if (far_end != kTheSwitch) {
    describe_pci(far_end, info);
    return kSuccess;
  }
  *info = {};
  std::memcpy(info->bus_id, kSwitchBusId, std::strlen(kSwitchBusId) + 1);
  return kSuccess;
}

Return nvmlDeviceGetGpuFabricInfoV(void* device, FabricInfo* info) {
  constexpr Return kVersionMismatch = static_cast<Return>(25);
  int index = -1;
  const Return state = find_device(device, &index);
  if (state != kSuccess) return state;
  if (info == nullptr) return kInvalidArgument;
  if (info->version != kFabricVersion3) return kVersionMismatch;
  const Topology topology = read_topology();
  const auto said = topology.fabrics.find(index);
  *info = {};
  info->version = kFabricVersion3;
  info->state = said == topology.fabrics.end() ? kFabricNotSupported : kFabricComplete;
  if (said == topology.fabrics.end()) return kSuccess;
  std::memcpy(info->cluster, said->second.cluster.data(), sizeof info->cluster);
  info->clique = said->second.clique;
  return kSuccess;
}

Return nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  int index = -1;
  const Return state = find_device(device, &index);
  if (state != kSuccess) return state;
  if (current == nullptr || pending == nullptr) return kInvalidArgument;
  *current = *pending = read_topology().mig.contains(index) ? 1 : 0;
  return kSuccess;
}

}  // extern "C"
