// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/nvml/topology.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/simulators/cudasim/card/settings.h"

namespace cudasim::nvml {
namespace {

constexpr int kMaxLinks = 18;

std::optional<Fabric> fabric_from(const std::string& hex, std::uint32_t clique) {
  Fabric fabric;
  fabric.clique = clique;
  if (hex.size() != fabric.cluster.size() * 2 ||
      hex.find_first_not_of("0123456789abcdef") != std::string::npos)
    return std::nullopt;
  for (std::size_t i = 0; i < fabric.cluster.size(); i++)
    fabric.cluster[i] = static_cast<std::uint8_t>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return fabric;
}

void add_links(Topology& topology, int device, int far_end, int count) {
  std::vector<int>& links = topology.links[device];
  const int free_links = kMaxLinks - static_cast<int>(links.size());
  links.insert(links.end(), static_cast<std::size_t>(std::clamp(count, 0, free_links)), far_end);
}

void read_line(const std::string& line, Topology& topology) {
  std::istringstream words(line.substr(0, line.find('#')));
  std::string what;
  int device = -1;
  int other = 0;
  int number = 0;
  if (!(words >> what >> device) || device < 0 || device >= kMaxDevices) return;
  if (what == "numa" && words >> number) topology.numa_nodes[device] = number;
  if (what == "mig") topology.mig.insert(device);
  if (what == "switch" && words >> number) add_links(topology, device, kTheSwitch, number);
  if (what == "fabric") {
    std::string hex;
    std::uint32_t clique = 0;
    if (words >> hex >> clique) {
      if (const auto fabric = fabric_from(hex, clique)) topology.fabrics[device] = *fabric;
    }
    return;
  }
  if (!(what == "nvlink" || what == "ancestor") || !(words >> other >> number)) return;
  if (other < 0 || other >= kMaxDevices || other == device) return;
  if (what == "ancestor") topology.ancestors[std::minmax(device, other)] = number;
  if (what == "nvlink") {
    add_links(topology, device, other, number);
    add_links(topology, other, device, number);
  }
}

}  // namespace

Topology parse_topology(const std::string& text) {
  Topology topology;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) read_line(line, topology);
  return topology;
}

Topology read_topology() {
  std::ifstream file(settings().dir + "/topology");
  std::ostringstream text;
  text << file.rdbuf();
  return parse_topology(text.str());
}

}  // namespace cudasim::nvml
