// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/ucx_context.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "libckpt/datapath/transport/ucx_guard.h"

namespace ckpt::transport {
namespace {

constexpr std::string_view kScheme = "ucx:";
// The socket buffers of a connection within this machine, which has no delay to cover. Bytes that wait in
// larger buffers have left the CPU caches when they are read (engine/README.md). Between machines the
// kernel's own sizing is better.
constexpr const char* kLocalSocketBuffer = "256k";

struct ConfigTraits {
  using Value = ucp_config_t*;
  static constexpr Value kNull = nullptr;
  static void close(Value config) noexcept { ucp_config_release(config); }
};

struct NetDevice {
  std::string name;
  bool loopback = false;
};

// Returns the network device that has the address.
Result<NetDevice> device_of(const LaneAddress& address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return Error::from_errno("Cannot list the network devices");
  NetDevice device;
  for (const ifaddrs* entry = list; entry != nullptr && device.name.empty(); entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != address.family()) continue;
    LaneAddress candidate;
    candidate.length = address.length;
    std::memcpy(&candidate.storage, entry->ifa_addr, address.length);
    if (ip_text(candidate) == ip_text(address))
      device = {entry->ifa_name, (entry->ifa_flags & IFF_LOOPBACK) != 0};
  }
  ::freeifaddrs(list);
  if (device.name.empty())
    return Error(ErrorCode::kInvalidArgument,
                 "No network device of this machine has the address " + ip_text(address));
  return device;
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  return entries;
}

// Returns the RDMA port that has the network device in its table of addresses, in UCX's notation: NAME:PORT.
// InfiniBand's network devices are in no table, but are children of the same card.
Result<std::string> rdma_port_of(const std::string& device) {
  for (const auto& rdma : entries_of("/sys/class/infiniband")) {
    for (const auto& port : entries_of(rdma / "ports")) {
      for (const auto& entry : entries_of(port / "gid_attrs" / "ndevs")) {
        std::string name;  // the network device of the entry; an unused entry cannot be read
        if (std::getline(std::ifstream(entry), name) && name == device)
          return rdma.filename().string() + ":" + port.filename().string();
      }
    }
  }
  const std::filesystem::path card = "/sys/class/net/" + device;
  unsigned port = 0;
  if (std::ifstream(card / "dev_port") >> port) {
    for (const auto& rdma : entries_of(card / "device" / "infiniband"))
      return rdma.filename().string() + ":" + std::to_string(port + 1);
  }
  return Error(ErrorCode::kNotSupported, "There is no RDMA device for the network device " + device);
}

Result<void> set(ucp_config_t* config, const std::string& name, const std::string& value) {
  const ucs_status_t status = ucp_config_modify(config, name.c_str(), value.c_str());
  if (status != UCS_OK) return ucx_error(status, "Setting UCX's " + name + " to " + value);
  return ok();
}

}  // namespace

Error ucx_error(ucs_status_t status, std::string what) {
  ErrorCode code = ErrorCode::kIo;
  switch (status) {
    case UCS_ERR_NO_MEMORY:
      code = ErrorCode::kOutOfMemory;
      break;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      code = ErrorCode::kInvalidArgument;
      break;
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NO_ELEM:
      code = ErrorCode::kNotSupported;
      break;
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
    case UCS_ERR_ENDPOINT_TIMEOUT:
      code = ErrorCode::kUnavailable;
      break;
    default:
      break;
  }
  return {code, ErrorDomain::kUcs, status, std::move(what) + ": " + ucs_status_string(status)};
}

Result<std::shared_ptr<const UcxContext>> UcxContext::create(const UcxOptions& options) {
  (void)check_ucx_guard();  // called here so that every program with lanes links the guard
  CKPT_TRY(local, parse_ip(options.ip));
  CKPT_TRY(device, device_of(local));
  ucp_config_t* read = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &read);
  if (status != UCS_OK) return ucx_error(status, "Cannot read UCX's configuration");
  const UniqueHandle<ConfigTraits> config(read);
  const std::string transports = options.rdma ? "rc_verbs" : "tcp";
  std::string used = device.name;
  if (options.rdma) {
    CKPT_TRY(port, rdma_port_of(device.name));
    used = port;
  }
  CKPT_TRYV(set(config.get(), "TLS", transports));
  CKPT_TRYV(set(config.get(), "NET_DEVICES", used));
  // Selects the transport that sets up connections. By default, UCX uses rdmacm for TCP, too, if there is an
  // RDMA device.
  CKPT_TRYV(set(config.get(), "SOCKADDR_TLS_PRIORITY", options.rdma ? "rdmacm" : "tcp"));
  // Selects the address family. If a device has addresses of both families, UCX takes the first one in its
  // setting.
  if (!options.rdma) {
    CKPT_TRYV(set(config.get(), "AF_PRIO", local.family() == AF_INET6 ? "inet6" : "inet"));
  }
  if (!options.rdma && options.ports.first != 0) {
    CKPT_TRYV(set(config.get(), "PORT_RANGE",
                  std::to_string(options.ports.first) + "-" + std::to_string(options.ports.last)));
  }
  if (device.loopback) {
    CKPT_TRYV(set(config.get(), "SNDBUF", kLocalSocketBuffer));
    CKPT_TRYV(set(config.get(), "RCVBUF", kLocalSocketBuffer));
  }
  for (const auto& [name, value] : options.settings) {
    CKPT_TRYV(set(config.get(), name, value));
  }

  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  params.name = "gpumigrate";
  ucp_context_h context = nullptr;
  status = ucp_init(&params, config.get(), &context);
  if (status != UCS_OK) return ucx_error(status, "Starting UCX with " + transports + " on " + used);
  return std::shared_ptr<const UcxContext>(
      new UcxContext(UniqueUcpContext(context), local, options.ports, options.rdma));
}

Result<UniqueUcpWorker> UcxContext::make_worker() const {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  const ucs_status_t status = ucp_worker_create(context_.get(), &params, &worker);
  if (status != UCS_OK) return ucx_error(status, "Creating a UCX worker");
  return UniqueUcpWorker(worker);
}

std::string format_ucx_address(const LaneAddress& address) {
  return format_address(kScheme, address);
}

Result<LaneAddress> parse_ucx_address(const std::string& text) {
  return parse_address(kScheme, text);
}

}  // namespace ckpt::transport
