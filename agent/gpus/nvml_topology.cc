// SPDX-License-Identifier: Apache-2.0
#include "agent/gpus/nvml_topology.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <map>

#include "agent/gpus/nvml.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

constexpr unsigned kMaxLinks = 36;  // limit for the links of any GPU (nvmlDeviceGetNvLinkState)
constexpr nvml::Return kVersionMismatch = 25;
constexpr int kFabricComplete = 3;
constexpr int kScopeNode = 0;

// The layout of nvmlGpuFabricInfoV_t. Version 2 ends before the summary.
struct FabricInfo {
  std::uint32_t version;
  std::uint8_t cluster[16];
  std::int32_t status;
  std::uint32_t clique;
  std::uint8_t state;
  std::uint8_t padding[3];
  std::uint32_t health_mask;
  std::uint8_t health_summary;
  std::uint8_t end[3];
};
static_assert(sizeof(FabricInfo) == 40 && offsetof(FabricInfo, status) == 20 &&
              offsetof(FabricInfo, state) == 28 && offsetof(FabricInfo, health_mask) == 32);
constexpr std::array<std::uint32_t, 2> kFabricVersions{40 | 3U << 24, 36 | 2U << 24};

template <class Function>
void load_symbol(void* library, const char* symbol, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(library, symbol));
}

}  // namespace

struct NvmlTopology::Table {
  nvml::Return (*memory_affinity)(nvml::Device, unsigned, unsigned long*, int) = nullptr;
  nvml::Return (*link_state)(nvml::Device, unsigned, int*) = nullptr;
  nvml::Return (*link_remote)(nvml::Device, unsigned, nvml::PciInfo*) = nullptr;
  nvml::Return (*common_ancestor)(nvml::Device, nvml::Device, int*) = nullptr;
  nvml::Return (*fabric_info)(nvml::Device, FabricInfo*) = nullptr;
  nvml::Return (*mig_mode)(nvml::Device, unsigned*, unsigned*) = nullptr;
  nvml::Return (*remapped_rows)(nvml::Device, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;

  // Returns the remote ends of active links, with the number of links to each.
  [[nodiscard]] std::map<std::string, std::uint32_t> links_of(nvml::Device device) const;
  [[nodiscard]] std::int32_t numa_node(const GpuHandle& gpu) const;
  [[nodiscard]] std::string fabric(nvml::Device device) const;
  void read_state(nvml::Device device, GpuTopology* out) const;
};

NvmlTopology::NvmlTopology(void* library) : table_(std::make_unique<Table>()) {
  load_symbol(library, "nvmlDeviceGetMemoryAffinity", &table_->memory_affinity);
  load_symbol(library, "nvmlDeviceGetNvLinkState", &table_->link_state);
  load_symbol(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", &table_->link_remote);
  load_symbol(library, "nvmlDeviceGetTopologyCommonAncestor", &table_->common_ancestor);
  load_symbol(library, "nvmlDeviceGetGpuFabricInfoV", &table_->fabric_info);
  load_symbol(library, "nvmlDeviceGetMigMode", &table_->mig_mode);
  load_symbol(library, "nvmlDeviceGetRemappedRows", &table_->remapped_rows);
}

NvmlTopology::~NvmlTopology() = default;
NvmlTopology::NvmlTopology(NvmlTopology&&) noexcept = default;
NvmlTopology& NvmlTopology::operator=(NvmlTopology&&) noexcept = default;

std::map<std::string, std::uint32_t> NvmlTopology::Table::links_of(nvml::Device device) const {
  std::map<std::string, std::uint32_t> ends;
  if (link_state == nullptr || link_remote == nullptr) return ends;
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    int up = 0;
    // A GPU with fewer links returns an error for this link's number. A GPU without NVLink returns an error
    // for every number.
    if (link_state(device, link, &up) != nvml::kSuccess) return ends;
    nvml::PciInfo remote{};
    if (up == 0 || link_remote(device, link, &remote) != nvml::kSuccess) continue;
    ++ends[std::string(remote.bus_id, ::strnlen(remote.bus_id, sizeof remote.bus_id))];
  }
  return ends;
}

// Returns the NUMA node nearest to the GPU. The function does not use nvmlDeviceGetNumaNodeId, because on
// coherent systems that call returns the node which the GPU's own memory forms.
std::int32_t NvmlTopology::Table::numa_node(const GpuHandle& gpu) const {
  std::array<unsigned long, 4> nodes{};
  if (memory_affinity == nullptr ||
      memory_affinity(gpu.device, nodes.size(), nodes.data(), kScopeNode) != nvml::kSuccess)
    return numa_node_of(gpu.bus_id);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] != 0) return static_cast<std::int32_t>(i * 64) + std::countr_zero(nodes[i]);
  }
  return numa_node_of(gpu.bus_id);
}

std::string NvmlTopology::Table::fabric(nvml::Device device) const {
  if (fabric_info == nullptr) return {};
  for (const std::uint32_t version : kFabricVersions) {
    FabricInfo info{};
    info.version = version;
    const nvml::Return code = fabric_info(device, &info);
    if (code == kVersionMismatch) continue;
    if (code != nvml::kSuccess || info.state != kFabricComplete || info.status != nvml::kSuccess) return {};
    std::string text;
    constexpr std::string_view kDigits = "0123456789abcdef";
    for (const std::uint8_t byte : info.cluster) {
      text += kDigits[byte >> 4];
      text += kDigits[byte & 15];
    }
    // An id of zeros means the node's own switches, which the node's links already show.
    if (text.find_first_not_of('0') == std::string::npos) return {};
    return text + "/" + std::to_string(info.clique);
  }
  return {};
}

void NvmlTopology::Table::read_state(nvml::Device device, GpuTopology* out) const {
  unsigned now = 0;
  unsigned pending = 0;
  if (mig_mode != nullptr && mig_mode(device, &now, &pending) == nvml::kSuccess) out->mig = now != 0;
  unsigned corrected = 0;
  unsigned uncorrected = 0;
  unsigned waiting = 0;
  unsigned failed = 0;
  if (remapped_rows != nullptr &&
      remapped_rows(device, &corrected, &uncorrected, &waiting, &failed) == nvml::kSuccess) {
    out->remap_pending = waiting != 0;
    out->remap_failed = failed != 0;
  }
}

std::vector<GpuTopology> NvmlTopology::read(const std::vector<GpuHandle>& gpus) const {
  std::vector<std::map<std::string, std::uint32_t>> links;
  for (const GpuHandle& gpu : gpus) links.push_back(table_->links_of(gpu.device));
  const auto between = [&](std::size_t a, std::size_t b) {
    std::uint32_t count = 0;
    for (const auto& [end, width] : links[a]) {
      if (end == gpus[b].bus_id) count += width;
      const auto same_switch = links[b].find(end);
      if (same_switch != links[b].end()) count += std::min(width, same_switch->second);
    }
    return count;
  };
  std::vector<GpuTopology> out(gpus.size());
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    out[i].numa_node = table_->numa_node(gpus[i]);
    out[i].fabric = table_->fabric(gpus[i].device);
    table_->read_state(gpus[i].device, &out[i]);
    for (std::size_t other = 0; other < gpus.size(); ++other) {
      if (other == i) continue;
      GpuPeerFacts& peer = out[i].peers.emplace_back();
      peer.index = gpus[other].index;
      peer.nvlinks = between(i, other);
      int level = 0;
      if (table_->common_ancestor != nullptr &&
          table_->common_ancestor(gpus[i].device, gpus[other].device, &level) == nvml::kSuccess && level >= 0)
        peer.common_ancestor = static_cast<std::uint32_t>(level);
    }
  }
  return out;
}

std::int32_t numa_node_of(const std::string& bus_id, const std::string& root) {
  // NVML writes the domain with eight digits in upper case. The kernel writes four digits in lower case.
  constexpr std::size_t kDomainDigits = 8;
  if (bus_id.find(':') != kDomainDigits) return -1;
  std::string name = bus_id.substr(kDomainDigits / 2);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (name.find_first_not_of("0123456789abcdef:.") != std::string::npos) return -1;
  auto text = read_file(root + "/" + name + "/numa_node", 64);
  if (!text) return -1;
  std::int32_t node = -1;
  const std::string& digits = *text;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), node);
  return error == std::errc{} && end != digits.data() ? std::max(node, -1) : -1;
}

}  // namespace ckpt::agent
