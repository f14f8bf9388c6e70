// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/probe.h"

#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/handle.h"
#include "libckpt/cuda/driver.h"

namespace ckpt::mover {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kChangesGpu = 13000;  // CUDA 13.0 (driver 580) added gpuPairs

void print(const Json& line) {
  std::printf("%s\n", line.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  std::fflush(stdout);
}

std::string name_of(const DriverApi& api, CUresult result) {
  const char* name = nullptr;
  if (api.cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  return "CUDA error " + std::to_string(static_cast<int>(result));
}

// Returns the attribute, or null if the driver does not know it.
Json attribute(const DriverApi& api, CUdevice device, CUdevice_attribute which) {
  int value = 0;
  if (api.cuDeviceGetAttribute(&value, which, device) != CUDA_SUCCESS) return nullptr;
  return value != 0;
}

Json device_facts(const DriverApi& api, int ordinal) {
  CUdevice device = 0;
  if (const CUresult result = api.cuDeviceGet(&device, ordinal); result != CUDA_SUCCESS)
    return {{"problem", "cuDeviceGet: " + name_of(api, result)}};
  std::array<char, 256> name{};
  std::size_t bytes = 0;
  Json facts = Json::object();
  if (api.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device) == CUDA_SUCCESS)
    facts["name"] = name.data();
  if (api.cuDeviceTotalMem_v2(&bytes, device) == CUDA_SUCCESS) facts["bytes"] = bytes;
  facts["virtual_memory"] = attribute(api, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  facts["descriptors"] =
      attribute(api, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  facts["direct_rdma"] = attribute(api, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  return facts;
}

Json driver_facts() {
  const Result<const DriverApi*> loaded = load_driver();
  if (!loaded) return {{"loaded", false}, {"problem", loaded.error().message()}};
  const DriverApi& api = **loaded;
  Json facts = {{"loaded", true}};
  int version = 0;
  api.cuDriverGetVersion(&version);
  facts["version"] = version;
  const bool checkpoint = api.cuCheckpointProcessGetState && api.cuCheckpointProcessLock &&
                          api.cuCheckpointProcessCheckpoint && api.cuCheckpointProcessRestore &&
                          api.cuCheckpointProcessUnlock && api.cuCheckpointProcessGetRestoreThreadId;
  facts["checkpoint"] = checkpoint;
  facts["change_gpu"] = checkpoint && version >= kChangesGpu;
  facts["devices"] = Json::array();
  int count = 0;
  CUresult result = api.cuInit(0);
  if (result != CUDA_SUCCESS) {
    facts["problem"] = "cuInit: " + name_of(api, result);
  } else if (result = api.cuDeviceGetCount(&count); result != CUDA_SUCCESS) {
    facts["problem"] = "cuDeviceGetCount: " + name_of(api, result);
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) facts["devices"].push_back(device_facts(api, ordinal));
  return facts;
}

struct MdConfigTraits {
  using Value = uct_md_config_t*;
  static constexpr Value kNull = nullptr;
  static void close(Value config) noexcept { uct_config_release(config); }
};
struct MdTraits {
  using Value = uct_md_h;
  static constexpr Value kNull = nullptr;
  static void close(Value md) noexcept { uct_md_close(md); }
};

// Adds the transports of one memory domain, such as "tcp/eth0".
void add_transports(uct_component_h component, const char* domain, std::set<std::string>& transports) {
  uct_md_config_t* read = nullptr;
  if (uct_md_config_read(component, nullptr, nullptr, &read) != UCS_OK) return;
  const UniqueHandle<MdConfigTraits> config(read);
  uct_md_h opened = nullptr;
  if (uct_md_open(component, domain, config.get(), &opened) != UCS_OK) return;
  const UniqueHandle<MdTraits> md(opened);
  uct_tl_resource_desc_t* resources = nullptr;
  unsigned count = 0;
  if (uct_md_query_tl_resources(md.get(), &resources, &count) != UCS_OK) return;
  for (const uct_tl_resource_desc_t& resource : std::span(resources, count))
    transports.insert(std::string(resource.tl_name) + "/" + resource.dev_name);
  uct_release_tl_resource_list(resources);
}

// Returns the component's name, or an empty string if UCX does not report one.
std::string inspect(uct_component_h component, std::set<std::string>& transports) {
  uct_component_attr_t facts{};
  facts.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (uct_component_query(component, &facts) != UCS_OK) return {};
  const std::string name = facts.name;
  std::vector<uct_md_resource_desc_t> domains(facts.md_resource_count);
  facts.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  facts.md_resources = domains.data();
  if (domains.empty() || uct_component_query(component, &facts) != UCS_OK) return name;
  for (const uct_md_resource_desc_t& domain : domains) add_transports(component, domain.md_name, transports);
  return name;
}

Json ucx_facts() {
  Json facts = {{"version", ucp_get_version_string()}};
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (const ucs_status_t status = uct_query_components(&components, &count); status != UCS_OK) {
    facts["problem"] = std::string("Cannot list UCX's components: ") + ucs_status_string(status);
    return facts;
  }
  std::set<std::string> names;
  std::set<std::string> transports;
  for (uct_component_h component : std::span(components, count)) names.insert(inspect(component, transports));
  uct_release_component_list(components);
  names.erase("");
  facts["components"] = names;
  facts["transports"] = transports;
  return facts;
}

}  // namespace

void print_probe() {
  print({{"driver", driver_facts()}});
  print({{"ucx", ucx_facts()}});
}

}  // namespace ckpt::mover
