// SPDX-License-Identifier: Apache-2.0
#include "agent/settings/config.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "libckpt/base/fd.h"
#include "libckpt/net/settings/table.h"

namespace ckpt::agent {
namespace {

constexpr std::int64_t kMaxMib = std::int64_t{1} << 32;
constexpr std::int64_t kMaxMs = std::int64_t{24} * 3600 * 1000;
constexpr std::int64_t kMaxPort = 65535;
constexpr std::size_t kMaxConfigBytes = 64 << 10;
// The minimum number of ports, which suffices for the lanes of one move, checks of its network, and a second
// move of the node.
constexpr int kFewestPorts = 32;

using settings::Allowed;
using settings::bad;
using settings::Setting;

constexpr Allowed kRequired{.required = true};
constexpr Allowed kMib{.max = kMaxMib};
constexpr Allowed kTime{.min = 1, .max = kMaxMs};
constexpr Allowed kTimeOrNever{.max = kMaxMs};

using Settings = std::vector<Setting>;

void add_cluster(Settings& to, Config& c) {
  to.insert(
      to.end(),
      {{"node", &c.node,
        "The node's name: letters, digits, `-`, `_` and `.`, at most 63, not beginning with `.`.", kRequired},
       {"home", &c.home,
        "The node's folder, an absolute path: journal, logs, output of jobs, images. The agent creates it.",
        kRequired},
       {"coordinator", &c.coordinator,
        "The coordinator's address, like `10.0.0.1:7070`. TCP needs `[tls]`; without it `unix:/path`."},
       {"token_file", &c.token_file,
        "File with the token that the agent shows to the coordinator, mode 0600. Used together with "
        "`coordinator`."},
       {"coordinator_file", &c.coordinator_file,
        "In place of `coordinator` and `token_file`: the `api.json` that the coordinator writes at each "
        "start."},
       {"peer_listen", &c.peer_listen,
        "Where other agents reach this one, like `10.0.0.5:7071`; port 0: any. TCP needs `[tls]`. Empty: "
        "`peer.sock` in `home`, for agents of this machine."},
       {"metrics_address", &c.metrics_address,
        "Where Prometheus reads this node's metrics: `10.0.0.5:9402` with `[tls]`, or `unix:/path`. Empty: "
        "metrics are not served."},
       {"metrics_token_file", &c.metrics_token_file,
        "File with the token that Prometheus must show ([metrics](../metrics.md)). Empty: none."},
       {"rack", &c.rack, "The rack of the machine, at most 64 bytes. Placement prefers the source's rack."},
       {"labels", &c.labels,
        "`KEY=VALUE` for people and scripts (`nodes -o json`), at most 64 of 128 bytes each; in KEY letters, "
        "digits and `_.-/`."},
       {"log_file", &c.log_file, "Where the log goes. Empty: standard error."},
       {"log_level",
        &c.log_level,
        "The least severe lines that are logged.",
        {.words = {"trace", "debug", "info", "warn", "error"}}}});
}

void add_programs(Settings& to, Config& c) {
  to.insert(
      to.end(),
      {{"keeper_program", &c.keeper_program, "Empty: `gpumigrate-keeper` next to the agent's program."},
       {"mover_program", &c.mover_program, "Empty: `gpumigrate-mover` next to the agent's program."},
       {"shim_library", &c.shim_library,
        "The library that is preloaded into transparent jobs. Empty: `libckpt_shim.so`, found from the "
        "agent's "
        "program."},
       {"criu", &c.criu,
        "Path of CRIU 4 or newer. Empty: CRIU is searched for in `GPUMIGRATE_CRIU`, the bundle, `PATH` and "
        "the installations of `tools/criu`."},
       {"nvml", &c.nvml, "The library that lists the GPUs."},
       {"job_environment", &c.job_environment,
        "`KEY=VALUE` that every job on this node gets in addition to, or in place of, its own environment."},
       {"job_log_limit_mib", &c.job_log_limit_mib,
        "Limit of each job's output that this node keeps; beyond the limit, the oldest bytes are removed. 0: "
        "no limit.",
        kMib},
       {"driver_processes", &c.driver_processes,
        "Names of processes that belong to the GPU driver: the driver's checkpoint closes a program's "
        "sockets to these processes."},
       {"driver_files", &c.driver_files,
        "Name prefixes of GPU driver files, in addition to `/dev/nvidia*`, that the driver's checkpoint "
        "closes. After `locks:`: name prefixes of files whose locks the checkpoint releases."},
       {"cache_folders", &c.cache_folders,
        "Folders whose files are moved with a program that has them open or mapped: path prefixes, or, with "
        "a star, parts of paths."},
       {"rehearsal", &c.rehearsal,
        "Whether the agent measures, once for each version, how long dumping and restoring a process takes "
        "on this node."},
       {"remap",
        &c.remap,
        "How memory gets its addresses after a restore on another GPU.",
        {.words = {"auto", "import", "own"}}}});
}

void add_images(Settings& to, Config& c) {
  to.insert(
      to.end(),
      {{"checkpoint_store_dir", &c.checkpoint_store_dir,
        "Where images of jobs are kept. Empty: `vault` in `home`."},
       {"checkpoint_store_limit_mib", &c.checkpoint_store_limit_mib,
        "Limit of all files of the checkpoint store, including those in memory; 0: no limit.", kMib},
       {"checkpoint_store_memory", &c.checkpoint_store_memory,
        "A folder of a tmpfs, like `/dev/shm/gpumigrate`: images that other nodes send are kept in memory, "
        "in its folder NODE. Empty: all images are stored on disk."},
       {"checkpoint_store_memory_limit_mib", &c.checkpoint_store_memory_limit_mib,
        "Limit of the images in memory. Images beyond the limit are written to `checkpoint_store_dir`; 0: "
        "all images are written there.",
        kMib},
       {"checkpoint_store_port",
        &c.checkpoint_store_port,
        "The port at which other nodes reach this node's images, at the first network's address; 0: the "
        "kernel "
        "chooses.",
        {.max = kMaxPort}},
       {"snapshot_staging_mib", &c.snapshot_staging_mib,
        "Host memory for changed data until it is in the checkpoint store; 0: half of the node's free "
        "memory.",
        kMib}});
}

void add_health(Settings& to, Config& c) {
  to.insert(
      to.end(),
      {{"kernel_log", &c.kernel_log,
        "The kernel's log, second source of GPU events; `auto`: `/dev/kmsg` if it can be read; empty: not "
        "read."},
       {"health_window_ms", &c.health_window,
        "How long after the first event of a GPU the agent decides what to do.", kTime},
       {"health_silence_ms", &c.health_silence,
        "How long the process that queries NVML may send no heartbeat before the driver counts as not "
        "answering.",
        kTime},
       {"health_repeats",
        &c.health_repeats,
        "How many jobs must have the same Xid on a GPU within a day before the GPU counts as suspect; 0: "
        "never.",
        {.max = 1000}},
       {"health_probe_deadline_ms", &c.health_probe_deadline,
        "How long a probe of a GPU may take before it counts as hung; 0: GPUs are not probed.", kTimeOrNever},
       {"health_probe_interval_ms", &c.health_probe_interval,
        "How often GPUs are probed; 0: only when there is a reason.", kTimeOrNever},
       {"health_tables", &c.health_tables, "CSV files whose rows replace those of `libckpt/health/data`."}});
}

void add_sections(Settings& to, Config& c) {
  to.insert(
      to.end(),
      {{"tls.ca", &c.tls.ca,
        "The certificate of the cluster's authority: the absolute path of a PEM file. With `[tls]`, all TCP "
        "connections of the agent use TLS, and both sides are verified "
        "([operations](../operations.md#certificates)).",
        kRequired},
       {"tls.certificate", &c.tls.certificate, "This node's certificate: the absolute path of a PEM file.",
        kRequired},
       {"tls.key", &c.tls.key,
        "The certificate's key: the absolute path of a PEM file with mode 0600 or 0400.", kRequired},
       {"lease.term_ms", &c.lease_term, "How long a lease of the running instance lasts during a switch.",
        kTime},
       {"timeouts.pause_ms", &c.pause_timeout,
        "How long a job may take to reach a barrier. After that, the job is left running and the migration "
        "fails.",
        kTime},
       {"timeouts.standby_ms", &c.standby_timeout,
        "How long a standby may take to get ready. After that, the standby is terminated and the migration "
        "fails.",
        kTime},
       {"timeouts.keeper_ms", &c.keeper_timeout, "How long a keeper may take to answer.", kTime},
       {"timeouts.mover_ms", &c.mover_timeout,
        "How long a mover may take to answer (not for rounds, which report progress).", kTime},
       {"timeouts.handover_ms", &c.handover_timeout,
        "How long a paused source queries only the coordinator before it also queries the target.", kTime},
       {"timeouts.nvml_ms", &c.nvml_timeout,
        "How long a call of the GPU library may take before the GPUs count as not answering.", kTime},
       {"mover.staging_mib", &c.staging_mib, "Staging memory of one mover.", {.min = 16, .max = 256}},
       {"mover.restart_ms", &c.mover_restart, "Pause before a mover is started again; doubles up to 30 s.",
        kTime},
       {"mover.ports", &c.mover_ports_text,
        "Where movers listen, like `7100-7199`, at least 32 ports from 1024 on. Empty: the kernel "
        "chooses."}});
}

// A [[network]] section as it is written in the file.
struct NetworkText {
  std::string name;
  std::string address;
  std::string device;
  std::string transport;
  std::vector<std::string> addresses;
  std::vector<std::string> devices;
};

Settings network_settings(NetworkText& n) {
  return {
      {"network.name", &n.name,
       "The network's name. Nodes that have a network of the same name reach each other over it.", kRequired},
      {"network.address", &n.address, "IP address of this node, for incoming and outgoing connections."},
      {"network.device", &n.device, "In place of `address`: the first address that this device has."},
      {"network.addresses", &n.addresses,
       "In place of `address`, at most 8 addresses: a move's lanes are spread over them. Each connects to "
       "the other node's address at the same position."},
      {"network.devices", &n.devices, "In place of `addresses`: each device's first address."},
      {"network.transport",
       &n.transport,
       "`tls`: TCP with TLS 1.3, with a new key for each migration. `ucx-trusted`: UCX over TCP, neither "
       "encrypted nor authenticated. `rdma-trusted`: UCX over the RDMA device of the network's device, IPv4 "
       "only, neither encrypted nor authenticated.",
       {.required = true, .words = {"tls", "ucx-trusted", "rdma-trusted"}}}};
}

Result<NetworkSettings> read_network(const toml::table& table, const std::string& source) {
  NetworkText text;
  CKPT_TRYV(settings::read_one(table, source, "network", network_settings(text)));
  wire::DataNetwork network;
  network.name = text.name;
  const std::string where = "[[network]] \"" + network.name + "\"";
  int given = 0;
  for (const char* key : {"address", "addresses", "device", "devices"}) given += table.contains(key) ? 1 : 0;
  if (!text.address.empty()) text.addresses = {text.address};
  if (!text.device.empty()) text.devices = {text.device};
  if (!is_safe_name(network.name))
    return bad(source,
               "\"network.name\" must be 1 to 63 letters, digits, '-', '_' or '.', not beginning with '.'");
  if (given != 1 || text.addresses.empty() == text.devices.empty())
    return bad(source,
               where + ": exactly one of \"address\", \"addresses\", \"device\" and \"devices\" is required");
  if (text.addresses.size() + text.devices.size() > wire::DataNetwork::kMaxAddresses)
    return bad(source, where + ": at most 8 addresses or devices are allowed");
  network.transport = record::value_named<wire::LaneTransport>(text.transport).value();
  for (const std::string& address : text.addresses) {
    if (!is_ip_address(address)) return bad(source, where + ": \"" + address + "\" is not an IP address");
    const std::string unusable = why_unusable(network.transport, address);
    if (!unusable.empty()) return bad(source, where + ": " + unusable);
  }
  if (!text.addresses.empty()) {
    network.address = text.addresses.front();
    network.more_addresses.assign(text.addresses.begin() + 1, text.addresses.end());
  }
  return NetworkSettings{std::move(network), std::move(text.devices)};
}

Result<void> read_networks(const toml::table& top, Config& c, const std::string& source) {
  constexpr std::size_t kMaxNetworks = 8;
  CKPT_TRY(tables, settings::tables_of(top, source, "network"));
  for (const toml::table* table : tables) {
    CKPT_TRY(network, read_network(*table, source));
    for (const NetworkSettings& other : c.networks)
      if (other.network.name == network.network.name)
        return bad(source, "two [[network]] tables have the name \"" + network.network.name + "\"");
    c.networks.push_back(network);
  }
  if (c.networks.size() > kMaxNetworks) return bad(source, "[[network]]: at most 8 networks are allowed");
  return ok();
}

// Parses a range such as "7100-7199".
Result<PortRange> parse_ports(const std::string& text, const std::string& source) {
  constexpr int kFirstPort = 1024;
  PortRange ports;
  if (text.empty()) return ports;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, ports.first);
  const bool is_range = first.ec == std::errc{} && first.ptr != end && *first.ptr == '-';
  const auto last = std::from_chars(is_range ? first.ptr + 1 : end, end, ports.last);
  if (!is_range || last.ec != std::errc{} || last.ptr != end || ports.first < kFirstPort ||
      ports.last - ports.first + 1 < kFewestPorts)
    return bad(source, "\"mover.ports\" must be a range with at least " + std::to_string(kFewestPorts) +
                           " ports from " + std::to_string(kFirstPort) + " on, like 7100-7199, not \"" +
                           text + "\"");
  return ports;
}

Result<void> check_ports(const Config& c, const std::string& source) {
  const auto clashes = [&c](int port) {
    return port != 0 && port >= c.mover_ports.first && port <= c.mover_ports.last;
  };
  if (clashes(c.checkpoint_store_port))
    return bad(source, "\"checkpoint_store_port\" must not be one of \"mover.ports\"");
  for (const auto& [key, address] :
       {std::pair("peer_listen", &c.peer_listen), std::pair("metrics_address", &c.metrics_address)}) {
    int port = 0;
    const char* digits = address->data() + address->rfind(':') + 1;
    (void)std::from_chars(digits, address->data() + address->size(), port);
    if (!address->starts_with("unix:") && clashes(port))
      return bad(source, "the port of \"" + std::string(key) + "\" must not be one of \"mover.ports\"");
  }
  return ok();
}

bool is_label(std::string_view text) {
  constexpr std::size_t kLongest = 128;
  const std::size_t equals = text.find('=');
  return text.size() <= kLongest && equals != std::string_view::npos && equals > 0 &&
         std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(equals), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                  std::string_view("_.-/").find(c) != std::string_view::npos;
         });
}

Result<void> check_where(const Config& c, const std::string& source) {
  constexpr std::size_t kMaxLabels = 64;
  constexpr std::size_t kLongestRack = 64;
  if (c.rack.size() > kLongestRack) return bad(source, "\"rack\" must be at most 64 bytes long");
  if (c.labels.size() > kMaxLabels) return bad(source, "\"labels\" must have at most 64 entries");
  for (const std::string& label : c.labels) {
    if (!is_label(label))
      return bad(source,
                 "\"labels\" must hold KEY=VALUE of at most 128 bytes, with letters, digits and _.-/ in KEY, "
                 "not \"" +
                     label + "\"");
  }
  return ok();
}

Result<void> check_addresses(const Config& c, const std::string& source) {
  for (const auto& [key, address] :
       {std::pair("coordinator", &c.coordinator), std::pair("peer_listen", &c.peer_listen),
        std::pair("metrics_address", &c.metrics_address)}) {
    if (c.tls.empty() && !address->empty() && !address->starts_with("unix:"))
      return bad(source, "\"" + std::string(key) + "\" = \"" + *address +
                             "\" is TCP, which needs a certificate ([tls]); create one with `gpumigrate node "
                             "certificate`, or use unix:/path");
  }
  return ok();
}

Result<void> check(const Config& c, const std::string& source) {
  if (!is_safe_name(c.node)) {
    return bad(source, "\"node\" must be 1 to 63 letters, digits, '-', '_' or '.', not beginning with '.'");
  }
  const bool by_address = !c.coordinator.empty() && !c.token_file.empty();
  if (by_address == !c.coordinator_file.empty() || (c.coordinator.empty() != c.token_file.empty())) {
    return bad(source, "either \"coordinator\" and \"token_file\", or \"coordinator_file\" is required");
  }
  for (const std::string& entry : c.job_environment) {
    if (entry.find('=') == std::string::npos || entry.front() == '=') {
      return bad(source, "\"job_environment\" must hold KEY=VALUE, not \"" + entry + "\"");
    }
  }
  CKPT_TRYV(check_where(c, source));
  if (!c.home.starts_with('/')) return bad(source, "\"home\" must be an absolute path");
  if (!c.checkpoint_store_dir.empty() && !c.checkpoint_store_dir.starts_with('/'))
    return bad(source, "\"checkpoint_store_dir\" must be an absolute path");
  if (!c.checkpoint_store_memory.empty() && !c.checkpoint_store_memory.starts_with('/'))
    return bad(source, "\"checkpoint_store_memory\" must be an absolute path");
  CKPT_TRYV(check_addresses(c, source));
  if (auto complete = tls::check_complete(c.tls); !complete)
    return bad(source, "[tls]: " + complete.error().message());
  return check_ports(c, source);
}

}  // namespace

bool is_safe_name(std::string_view name) {
  if (name.empty() || name.size() > 63 || name.front() == '.') return false;
  for (char ch : name) {
    const bool plain = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9');
    if (!plain && ch != '-' && ch != '_' && ch != '.') return false;
  }
  return true;
}

Result<std::vector<std::uint32_t>> parse_visible_gpus(const char* text) {
  std::vector<std::uint32_t> gpus;
  std::string_view rest = text ? text : "";
  if (rest.starts_with("GPU-") || rest.starts_with("MIG-")) {
    return Error(ErrorCode::kNotSupported,
                 "CUDA_VISIBLE_DEVICES names GPUs by UUID, which the agent does not understand: use indices");
  }
  while (!rest.empty()) {
    std::uint32_t gpu = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), gpu);
    if (error != std::errc{}) break;
    gpus.push_back(gpu);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (!rest.starts_with(',')) break;
    rest.remove_prefix(1);
  }
  return gpus;
}

std::vector<settings::Setting> settings_of(Config& c) {
  Settings all;
  add_cluster(all, c);
  add_sections(all, c);
  add_images(all, c);
  add_health(all, c);
  add_programs(all, c);
  return all;
}

std::string settings_page() {
  Config defaults;
  NetworkText network;
  return settings::describe(settings_of(defaults)) + settings::describe(network_settings(network));
}

Result<Config> parse_config(std::string_view text, const std::string& source) {
  CKPT_TRY(table, settings::parse(text, source));
  Config config;
  CKPT_TRYV(settings::read(table, source, settings_of(config), {"network"}));
  CKPT_TRYV(read_networks(table, config, source));
  CKPT_TRY(ports, parse_ports(config.mover_ports_text, source));
  config.mover_ports = ports;
  if (config.peer_listen.empty()) config.peer_listen = "unix:" + config.home + "/peer.sock";
  CKPT_TRYV(check(config, source));
  return config;
}

Result<Config> load_config(const std::string& path) {
  auto text = read_file(path, kMaxConfigBytes);
  if (!text) {
    return Error(ErrorCode::kInvalidArgument, "Cannot read the agent's settings").caused_by(text.error());
  }
  return parse_config(*text, path);
}

}  // namespace ckpt::agent
