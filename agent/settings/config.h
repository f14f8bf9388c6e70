// SPDX-License-Identifier: Apache-2.0
// The agent's settings: agent.toml. settings_of() lists every key with its default and its description, and
// docs/site/settings.md is generated from this list. Unknown keys are refused.
// Threads: pure functions and a plain value. Errors: kInvalidArgument names the file, the key or line, and
// the expected value.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/settings/networks.h"
#include "libckpt/base/result.h"
#include "libckpt/net/settings/setting.h"
#include "libckpt/net/tls/cert_identity.h"

namespace ckpt::agent {

// A range of ports. If both ends are 0, the kernel chooses the ports.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};

struct Config {
  std::string node;
  std::string home;
  std::string coordinator;
  std::string token_file;
  std::string coordinator_file;
  std::string peer_listen;  // address for other agents; never empty after parsing
  tls::CertFiles tls;       // files of certificate and key; empty without TLS
  std::string metrics_address;
  std::string metrics_token_file;
  std::string log_file;
  std::string log_level = "info";
  std::string keeper_program;
  std::string mover_program;
  std::string shim_library;
  std::string criu;
  bool rehearsal = true;
  std::string remap = "auto";
  std::vector<std::string> driver_processes;
  std::vector<std::string> driver_files;
  std::vector<std::string> cache_folders = {"*/.triton/cache/", "/tmp/torchinductor_"};
  // The program that puts transparent jobs into their own PID namespaces. It is not a key of the file. It is
  // empty while this node cannot move processes.
  std::string init_program;
  std::string checkpoint_store_dir;
  std::uint64_t checkpoint_store_limit_mib = 0;
  std::string checkpoint_store_memory;
  std::uint64_t checkpoint_store_memory_limit_mib = 0;
  std::uint16_t checkpoint_store_port = 0;
  std::uint64_t snapshot_staging_mib = 0;
  std::string nvml = "libnvidia-ml.so.1";
  std::vector<std::string> job_environment;
  std::uint64_t job_log_limit_mib = 256;
  std::string rack;
  std::vector<std::string> labels;
  std::string kernel_log = "auto";
  std::vector<std::string> health_tables;
  std::chrono::milliseconds health_window{3000};
  std::chrono::milliseconds health_silence{5000};
  std::uint32_t health_repeats = 3;
  std::chrono::milliseconds health_probe_deadline{20000};
  std::chrono::milliseconds health_probe_interval{0};

  std::chrono::milliseconds lease_term{5000};
  std::chrono::milliseconds pause_timeout{60000};
  std::chrono::milliseconds standby_timeout{300000};
  std::chrono::milliseconds keeper_timeout{10000};
  std::chrono::milliseconds mover_timeout{30000};
  std::chrono::milliseconds handover_timeout{5000};
  std::chrono::milliseconds nvml_timeout{5000};
  std::uint32_t staging_mib = 128;
  std::chrono::milliseconds mover_restart{200};
  std::string mover_ports_text;
  PortRange mover_ports;  // parsed from mover_ports_text

  std::vector<NetworkSettings> networks;  // networks for moves; empty means this machine's loopback
                                          // (networks.h)

  // The GPUs of the machine that CUDA_VISIBLE_DEVICES assigns to this node, in its order. Empty means all
  // GPUs. They come from the environment, not from the file. The node numbers its own GPUs from 0.
  std::vector<std::uint32_t> visible_gpus;
  [[nodiscard]] std::uint32_t machine_gpu(std::uint32_t gpu) const {
    return gpu < visible_gpus.size() ? visible_gpus[gpu] : gpu;
  }

  [[nodiscard]] std::string jobs_folder() const { return home + "/jobs"; }
  [[nodiscard]] std::string journal_path() const { return home + "/journal"; }
  [[nodiscard]] std::string gang_journal_path() const { return home + "/gang-journal"; }
  [[nodiscard]] std::string checkpoint_store_folder() const {
    return checkpoint_store_dir.empty() ? home + "/vault" : checkpoint_store_dir;
  }
  // Returns the folder of the tier in memory, or an empty string if there is none.
  [[nodiscard]] std::string checkpoint_store_memory_folder() const {
    return checkpoint_store_memory.empty() ? "" : checkpoint_store_memory + "/" + node;
  }
};

// Returns every key except those of [[network]]. The result points into `config`.
[[nodiscard]] std::vector<settings::Setting> settings_of(Config& config);
// Returns all keys as rows of docs/site/settings.md.
[[nodiscard]] std::string settings_page();

// Reads and checks the file.
Result<Config> load_config(const std::string& path);

// Parses and checks the settings from `text`. `source` names the text in errors.
Result<Config> parse_config(std::string_view text, const std::string& source);

// Parses the value of CUDA_VISIBLE_DEVICES (may be null) into machine-wide indices. Like the driver, the
// function stops at the first item that is not an index. UUIDs are not supported and return kNotSupported.
Result<std::vector<std::uint32_t>> parse_visible_gpus(const char* text);

// Checks whether a name may become a folder name, as names of nodes and jobs do. A name has 1 to 63 letters,
// digits, '-', '_' or '.', and does not begin with '.'.
[[nodiscard]] bool is_safe_name(std::string_view name);

}  // namespace ckpt::agent
