// SPDX-License-Identifier: Apache-2.0
#include "agent/settings/config.h"

#include <sys/stat.h>

#include <toml++/toml.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <functional>
#include <map>
#include <set>

#include "libckpt/base/fd.h"
#include "libckpt/net/control/toml_text.h"

namespace ckpt::agent {
namespace {

constexpr std::int64_t kMaxMib = std::int64_t{1} << 32;
constexpr std::size_t kMaxConfigBytes = 64 << 10;

Error bad(const std::string& source, const std::string& what) {
  return Error(ErrorCode::kInvalidArgument, source + ": " + what);
}

// Takes known keys out of a table and refuses what is left.
class Reader {
 public:
  Reader(const toml::table& table, std::string source, std::string prefix)
      : table_(table), source_(std::move(source)), prefix_(std::move(prefix)) {}

  Result<void> text(const char* key, std::string* out, bool required) {
    seen_.insert(key);
    const toml::node* node = table_.get(key);
    if (!node) return required ? Result<void>(bad(source_, "\"" + prefix_ + key + "\" is required")) : ok();
    auto value = node->value_exact<std::string>();
    if (!value) return bad(source_, "\"" + prefix_ + key + "\" must be a string");
    if (required && value->empty()) return bad(source_, "\"" + prefix_ + key + "\" must not be empty");
    *out = *value;
    return ok();
  }

  [[nodiscard]] bool has(const char* key) const { return table_.contains(key); }

  Result<void> texts(const char* key, std::vector<std::string>* out) {
    seen_.insert(key);
    const toml::node* node = table_.get(key);
    if (!node) return ok();
    const toml::array* list = node->as_array();
    if (!list) return bad(source_, "\"" + prefix_ + key + "\" must be a list of strings");
    for (const toml::node& entry : *list) {
      auto value = entry.value_exact<std::string>();
      if (!value) return bad(source_, "\"" + prefix_ + key + "\" must be a list of strings");
      out->push_back(*value);
    }
    return ok();
  }

  Result<void> flag(const char* key, bool* out) {
    seen_.insert(key);
    const toml::node* node = table_.get(key);
    if (!node) return ok();
    auto value = node->value_exact<bool>();
    if (!value) return bad(source_, "\"" + prefix_ + key + "\" must be true or false");
    *out = *value;
    return ok();
  }

  Result<void> number(const char* key, std::int64_t low, std::int64_t high,
                      const std::function<void(std::int64_t)>& set) {
    seen_.insert(key);
    const toml::node* node = table_.get(key);
    if (!node) return ok();
    auto value = node->value_exact<std::int64_t>();
    if (!value || *value < low || *value > high) {
      return bad(source_, "\"" + prefix_ + key + "\" must be a whole number from " + std::to_string(low) +
                              " to " + std::to_string(high));
    }
    set(*value);
    return ok();
  }

  Result<void> milliseconds(const char* key, std::chrono::milliseconds* out, std::int64_t least = 1) {
    return number(key, least, 24 * 3600 * 1000,
                  [out](std::int64_t v) { *out = std::chrono::milliseconds(v); });
  }

  // A table of its own inside this one; an empty one if it is absent.
  Result<const toml::table*> section(const char* key) {
    static const toml::table kEmpty;
    seen_.insert(key);
    const toml::node* node = table_.get(key);
    if (!node) return &kEmpty;
    if (!node->is_table()) return bad(source_, "\"" + prefix_ + key + "\" must be a table");
    return node->as_table();
  }

  // An array of tables; none if it is absent.
  Result<std::vector<const toml::table*>> sections(const char* key) {
    std::vector<const toml::table*> tables;
    seen_.insert(key);
    const toml::node* node = table_.get(key);
    if (!node) return tables;
    const toml::array* list = node->as_array();
    if (list == nullptr || !list->is_homogeneous<toml::table>())
      return bad(source_, "\"" + prefix_ + key + "\" must be written as [[" + prefix_ + key + "]]");
    for (const toml::node& entry : *list) tables.push_back(entry.as_table());
    return tables;
  }

  Result<void> refuse_unknown() const {
    for (const auto& [key, node] : table_) {
      if (!seen_.contains(std::string(key.str()))) {
        return bad(source_, "unknown key \"" + prefix_ + std::string(key.str()) + "\" at line " +
                                std::to_string(node.source().begin.line));
      }
    }
    return ok();
  }

 private:
  const toml::table& table_;
  std::string source_;
  std::string prefix_;
  std::set<std::string> seen_;
};

// Of the keys `one` and `several`, which exclude each other.
Result<std::vector<std::string>> read_one_or_several(Reader& r, const char* one, const char* several) {
  std::vector<std::string> values;
  std::string only;
  CKPT_TRYV(r.texts(several, &values));
  CKPT_TRYV(r.text(one, &only, false));
  if (!only.empty()) values.push_back(only);
  return values;
}

Result<NetworkSettings> read_network(Reader& r, const std::string& source) {
  wire::DataNetwork network;
  std::string transport;
  CKPT_TRYV(r.text("name", &network.name, true));
  int given = 0;
  for (const char* key : {"address", "addresses", "device", "devices"}) given += r.has(key) ? 1 : 0;
  CKPT_TRY(addresses, read_one_or_several(r, "address", "addresses"));
  CKPT_TRY(devices, read_one_or_several(r, "device", "devices"));
  CKPT_TRYV(r.text("transport", &transport, true));
  CKPT_TRYV(r.refuse_unknown());
  const std::string where = "[[network]] \"" + network.name + "\"";
  if (!is_safe_name(network.name))
    return bad(source,
               "\"network.name\" must be 1 to 63 letters, digits, '-', '_' or '.', not beginning with '.'");
  if (given != 1 || addresses.empty() == devices.empty())
    return bad(source, where + ": one of \"address\", \"addresses\", \"device\" and \"devices\" is required");
  if (addresses.size() + devices.size() > wire::DataNetwork::kMaxAddresses)
    return bad(source, where + ": at most 8 addresses or devices are possible");
  const auto known = wire::parse_lane_transport(transport);
  if (!known) return bad(source, where + ": \"transport\" must be tls, ucx-trusted or rdma-trusted");
  network.transport = *known;
  for (const std::string& address : addresses) {
    if (!is_ip_address(address)) return bad(source, where + ": \"" + address + "\" is no IP address");
    const std::string unusable = why_unusable(network.transport, address);
    if (!unusable.empty()) return bad(source, where + ": " + unusable);
  }
  if (!addresses.empty()) {
    network.address = addresses.front();
    network.more_addresses.assign(addresses.begin() + 1, addresses.end());
  }
  return NetworkSettings{std::move(network), std::move(devices)};
}

Result<void> read_networks(Reader& top, Config& c, const std::string& source) {
  constexpr std::size_t kMaxNetworks = 8;
  CKPT_TRY(tables, top.sections("network"));
  for (const toml::table* table : tables) {
    Reader reader(*table, source, "network.");
    CKPT_TRY(network, read_network(reader, source));
    for (const NetworkSettings& other : c.networks)
      if (other.network.name == network.network.name)
        return bad(source, "two [[network]] have the name \"" + network.network.name + "\"");
    c.networks.push_back(network);
  }
  if (c.networks.size() > kMaxNetworks) return bad(source, "[[network]]: at most 8 are possible");
  return ok();
}

Result<void> read_top(Reader& r, Config& c) {
  CKPT_TRYV(r.text("node", &c.node, true));
  CKPT_TRYV(r.text("home", &c.home, true));
  CKPT_TRYV(r.text("coordinator", &c.coordinator, false));
  CKPT_TRYV(r.text("token_file", &c.token_file, false));
  CKPT_TRYV(r.text("coordinator_file", &c.coordinator_file, false));
  CKPT_TRYV(r.text("peer_listen", &c.peer_listen, false));
  CKPT_TRYV(r.text("metrics_address", &c.metrics_address, false));
  CKPT_TRYV(r.text("metrics_token_file", &c.metrics_token_file, false));
  CKPT_TRYV(r.text("log_file", &c.log_file, false));
  CKPT_TRYV(r.text("log_level", &c.log_level, false));
  CKPT_TRYV(r.text("keeper_program", &c.keeper_program, false));
  CKPT_TRYV(r.text("mover_program", &c.mover_program, false));
  CKPT_TRYV(r.text("shim_library", &c.shim_library, false));
  CKPT_TRYV(r.text("criu", &c.criu, false));
  CKPT_TRYV(r.flag("rehearsal", &c.rehearsal));
  CKPT_TRYV(r.text("remap", &c.remap, false));
  CKPT_TRYV(r.text("vault_dir", &c.vault_dir, false));
  CKPT_TRYV(r.number("vault_limit_mib", 0, kMaxMib,
                     [&c](std::int64_t v) { c.vault_limit_mib = static_cast<std::uint64_t>(v); }));
  CKPT_TRYV(r.text("vault_memory", &c.vault_memory, false));
  CKPT_TRYV(r.number("vault_memory_limit_mib", 0, kMaxMib,
                     [&c](std::int64_t v) { c.vault_memory_limit_mib = static_cast<std::uint64_t>(v); }));
  CKPT_TRYV(r.number("snapshot_staging_mib", 0, kMaxMib,
                     [&c](std::int64_t v) { c.snapshot_staging_mib = static_cast<std::uint64_t>(v); }));
  CKPT_TRYV(r.text("nvml", &c.nvml, false));
  CKPT_TRYV(r.texts("job_environment", &c.job_environment));
  CKPT_TRYV(r.text("kernel_log", &c.kernel_log, false));
  CKPT_TRYV(r.texts("health_tables", &c.health_tables));
  CKPT_TRYV(r.milliseconds("health_window_ms", &c.health_window));
  CKPT_TRYV(r.milliseconds("health_silence_ms", &c.health_silence));
  CKPT_TRYV(r.milliseconds("health_probe_deadline_ms", &c.health_probe_deadline, 0));
  CKPT_TRYV(r.milliseconds("health_probe_interval_ms", &c.health_probe_interval, 0));
  CKPT_TRYV(r.number("health_repeats", 0, 1000,
                     [&c](std::int64_t v) { c.health_repeats = static_cast<std::uint32_t>(v); }));
  CKPT_TRYV(r.texts("driver_processes", &c.driver_processes));
  CKPT_TRYV(r.texts("driver_files", &c.driver_files));
  CKPT_TRYV(r.texts("cache_folders", &c.cache_folders));
  CKPT_TRYV(r.text("rack", &c.rack, false));
  CKPT_TRYV(r.texts("labels", &c.labels));
  return ok();
}

Result<void> read_tls(Reader& top, Config& c, const std::string& source) {
  CKPT_TRY(table, top.section("tls"));
  Reader tls(*table, source, "tls.");
  CKPT_TRYV(tls.text("ca", &c.tls.ca, !table->empty()));
  CKPT_TRYV(tls.text("certificate", &c.tls.certificate, !table->empty()));
  CKPT_TRYV(tls.text("key", &c.tls.key, !table->empty()));
  CKPT_TRYV(tls.refuse_unknown());
  if (auto complete = tls::check_complete(c.tls); !complete)
    return bad(source, "[tls]: " + complete.assume_error().message());
  return ok();
}

Result<void> read_sections(Reader& top, Config& c, const std::string& source) {
  CKPT_TRYV(read_tls(top, c, source));
  CKPT_TRY(lease_table, top.section("lease"));
  Reader lease(*lease_table, source, "lease.");
  CKPT_TRYV(lease.milliseconds("term_ms", &c.lease_term));
  CKPT_TRYV(lease.refuse_unknown());

  CKPT_TRY(timeout_table, top.section("timeouts"));
  Reader timeouts(*timeout_table, source, "timeouts.");
  CKPT_TRYV(timeouts.milliseconds("pause_ms", &c.pause_timeout));
  CKPT_TRYV(timeouts.milliseconds("standby_ms", &c.standby_timeout));
  CKPT_TRYV(timeouts.milliseconds("keeper_ms", &c.keeper_timeout));
  CKPT_TRYV(timeouts.milliseconds("mover_ms", &c.mover_timeout));
  CKPT_TRYV(timeouts.milliseconds("switch_ms", &c.switch_timeout));
  CKPT_TRYV(timeouts.milliseconds("nvml_ms", &c.nvml_timeout));
  CKPT_TRYV(timeouts.refuse_unknown());

  CKPT_TRY(mover_table, top.section("mover"));
  Reader mover(*mover_table, source, "mover.");
  CKPT_TRYV(mover.number("staging_mib", 16, 256,
                         [&c](std::int64_t v) { c.staging_mib = static_cast<std::uint32_t>(v); }));
  CKPT_TRYV(mover.milliseconds("restart_ms", &c.mover_restart));
  CKPT_TRYV(mover.refuse_unknown());
  return read_networks(top, c, source);
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
  if (c.labels.size() > kMaxLabels) return bad(source, "\"labels\" must be at most 64");
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
      return bad(source,
                 "\"" + std::string(key) + "\" = \"" + *address +
                     "\" is TCP, which needs a certificate ([tls]); `gpumigrate node certificate` makes "
                     "one. Without it use unix:/path");
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
  if (c.remap != "auto" && c.remap != "import" && c.remap != "own")
    return bad(source, "\"remap\" must be auto, import or own");
  CKPT_TRYV(check_where(c, source));
  if (!c.home.starts_with('/')) return bad(source, "\"home\" must be an absolute path");
  if (!c.vault_dir.empty() && !c.vault_dir.starts_with('/'))
    return bad(source, "\"vault_dir\" must be an absolute path");
  if (!c.vault_memory.empty() && !c.vault_memory.starts_with('/'))
    return bad(source, "\"vault_memory\" must be an absolute path");
  CKPT_TRYV(check_addresses(c, source));
  static constexpr std::array<std::string_view, 5> kLevels{"trace", "debug", "info", "warn", "error"};
  for (std::string_view level : kLevels) {
    if (c.log_level == level) return ok();
  }
  return bad(source, "\"log_level\" must be trace, debug, info, warn or error");
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

Result<Config> parse_config(std::string_view text, const std::string& source) {
  CKPT_TRYV(control::check_toml_text(text, source));
  toml::table table;
  try {
    table = toml::parse(text, source);
  } catch (const toml::parse_error& e) {
    return bad(source, "line " + std::to_string(e.source().begin.line) + ": " + std::string(e.description()));
  }
  Config config;
  Reader top(table, source, "");
  CKPT_TRYV(read_top(top, config));
  CKPT_TRYV(read_sections(top, config, source));
  CKPT_TRYV(top.refuse_unknown());
  if (config.peer_listen.empty()) config.peer_listen = "unix:" + config.home + "/peer.sock";
  CKPT_TRYV(check(config, source));
  return config;
}

Result<Config> load_config(const std::string& path) {
  auto text = read_file(path, kMaxConfigBytes);
  if (!text) {
    return Error(ErrorCode::kInvalidArgument, "Cannot read the agent's settings")
        .caused_by(text.assume_error());
  }
  return parse_config(text.assume_value(), path);
}

}  // namespace ckpt::agent
