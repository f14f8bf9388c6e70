// SPDX-License-Identifier: Apache-2.0
// The agent's settings: a TOML file, every key documented here with its default. Unknown keys are refused, so
// that a misspelt one is noticed at start and not in an outage. A value type.
//
//   node          = "a"                  required; letters, digits, '-', '_', '.', at most 63; never begins
//                                        with '.'
//   home          = "/var/lib/..."       required: this node's folder (journal, agent.log, jobs/,
//                                        mover-N.log)
//   coordinator   = "10.0.0.1:7070"      where to dial; TCP needs [tls], without it "unix:/path"
//   token_file    = "/path"              mode 0600, the token that agents show to the coordinator
//   coordinator_file = "/.../api.json"   in place of both: the file in which the coordinator writes them at
//                                        each start
//   peer_listen   = ""                   where other agents reach this one, like "10.0.0.5:7080"; port 0: any;
//                                        TCP needs [tls]; empty: peer.sock in home, for agents of this machine
//   metrics_address = ""                 where this node's metrics are read: "10.0.0.5:9402" with [tls], or
//                                        "unix:/path"; empty: nowhere
//   metrics_token_file = ""              what Prometheus must show (docs/metrics.md); empty: nothing
//   log_file      = ""                   empty: standard error
//   log_level     = "info"               trace | debug | info | warn | error
//   keeper_program = ""                  empty: gpumigrate-keeper beside this program
//   mover_program = ""                   empty: gpumigrate-mover beside this program
//   criu = ""                            CRIU >= 4; empty: it is looked for (host_process/criu.h)
//   shim_library = ""                    preloaded into transparent jobs; empty: ../lib/libckpt_shim.so from
//                                        this program's folder
//   driver_processes = []                names of processes that belong to the GPU driver: its checkpoint
//                                        closes a program's sockets to them
//   driver_files = []                    further files of the GPU driver than /dev/nvidia*: its checkpoint closes
//                                        them; the beginnings of their names
//   cache_folders = ["*/.triton/cache/", "/tmp/torchinductor_"]
//                                        files of these folders that a program has mapped or open travel with it:
//                                        beginnings of paths, or with a star parts of them
//   rehearsal = true                     tries once for each version what dumping and restoring a process
//                                        takes here (rehearsal.h)
//   remap = "auto"                        memory after a restore on another GPU: import | own | auto
//                                         (remap.h)
//   vault_dir     = ""                   where images of jobs are kept; empty: HOME/vault
//   vault_limit_mib = 0                  of all files there; 0: none
//   vault_memory  = ""                   a folder of a tmpfs, like "/dev/shm/gpumigrate": images that other
//                                        nodes send here lie in memory, in its folder NODE
//   vault_memory_limit_mib = 0           of those; beyond it, and with 0, they lie in vault_dir
//   snapshot_staging_mib = 0             host memory for what changed, until it is in the vault; 0: half of
//                                        what the node has left
//   nvml          = "libnvidia-ml.so.1"  the library that lists the GPUs
//   rack          = ""                   where the machine stands; placement prefers the source's
//   labels        = ["KEY=VALUE", ...]   for people and scripts (nodes -o json); letters, digits and _.-/ in
//                                        KEY, at most 64 of 128 bytes each
//   kernel_log    = "auto"               the kernel's log, second source of GPU events; empty: not
//                                        read; auto: /dev/kmsg if it can be read
//   health_window_ms = 3000              how long after the first event of a GPU its case is decided
//                                        (health/monitor.h)
//   health_silence_ms = 5000             without a heartbeat of the process that asks NVML; then the driver
//                                        counts as not answering
//   health_repeats = 3                   different jobs with the same Xid on a GPU within a day that make it
//                                        suspect; 0: never
//   health_probe_deadline_ms = 20000     a probe of a GPU that is not done by then hangs
//                                        (health/gpu_probes.h); 0: there are no probes
//   health_probe_interval_ms = 0         GPUs are probed this often; 0: only when there is a reason to
//   health_tables = []                   CSV files whose rows replace those of libckpt/health/data
//   job_environment = ["KEY=VALUE", ...]  what every job on this node gets besides, or in place of, its own
//                                         environment
//   [tls]         ca, certificate, key   PEM files, absolute paths: this node's certificate. All TCP of the
//                                        agent is TLS, both sides verified (docs/operations.md)
//   [lease]       term_ms = 5000         lease of the running instance inside a switch
//   [timeouts]    pause_ms = 60000       a job that has reached no barrier by then is left alone, the
//                                        migration fails
//                 standby_ms = 300000    a standby that is not ready by then is ended, the migration fails
//                 keeper_ms = 10000      an answer of a keeper
//                 mover_ms = 30000       an answer of a mover (not: rounds, which report progress)
//                 switch_ms = 5000       how long a paused source asks the coordinator only, before it asks
//                                        the target, too
//                 nvml_ms = 5000         a call into the GPU library; later the GPUs count as not answering
//   [[network]]                          a network that movers and the checkpoint store use; the first is
//                                        preferred. None: "local", this machine's loopback
//                 name = "data"          nodes that have one of the same name reach each other over it
//                 address = "10.0.0.5"   of this node: listened on and dialled from
//                 device = "eth1"        in place of address: the first address that this device has
//                 addresses = ["10.0.0.5", "10.1.0.5"]   in place of address, at most 8: a move's lanes are
//                                        spread over them, the first to the other node's first one and so on
//                 devices = ["eth1", "eth2"]   in place of addresses: each device's first address
//                 transport = "tls"      TCP with TLS 1.3, its key fresh for each migration. IPv4 and IPv6
//                             "ucx-trusted"   UCX over TCP: neither encrypted nor authenticated. A host
//                                        that reaches a mover's port may write its memory. IPv4 and IPv6,
//                                        but not ::1
//                             "rdma-trusted"  UCX over the RDMA device that stands on the network's device
//                                        (rc_verbs, connected by rdmacm); open as ucx-trusted is. IPv4 alone
//   [mover]       staging_mib = 128      staging memory of one mover, 16..256
//                 restart_ms = 200       pause before a mover is started again; doubles up to 30 s
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/settings/networks.h"
#include "libckpt/base/result.h"
#include "libckpt/net/tls/cert_identity.h"

namespace ckpt::agent {

struct Config {
  std::string node;
  std::string home;
  std::string coordinator;
  std::string token_file;
  std::string coordinator_file;
  std::string peer_listen;  // never empty once parsed
  tls::CertFiles tls;       // empty: no TLS
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
  // Not a key: what puts transparent jobs into PID namespaces of their own; empty while this node cannot move
  // processes.
  std::string init_program;
  std::string vault_dir;
  std::uint64_t vault_limit_mib = 0;
  std::string vault_memory;
  std::uint64_t vault_memory_limit_mib = 0;
  std::uint64_t snapshot_staging_mib = 0;
  std::string nvml = "libnvidia-ml.so.1";
  std::vector<std::string> job_environment;
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
  std::chrono::milliseconds switch_timeout{5000};
  std::chrono::milliseconds nvml_timeout{5000};
  std::uint32_t staging_mib = 128;
  std::chrono::milliseconds mover_restart{200};

  std::vector<NetworkSettings> networks;  // none: this machine's loopback (networks.h)

  // From the environment, not from the file: the GPUs of the machine that CUDA_VISIBLE_DEVICES leaves to this
  // node, in its order; empty: all. The node counts its own GPUs from 0.
  std::vector<std::uint32_t> visible_gpus;
  [[nodiscard]] std::uint32_t machine_gpu(std::uint32_t gpu) const {
    return gpu < visible_gpus.size() ? visible_gpus[gpu] : gpu;
  }

  [[nodiscard]] std::string jobs_folder() const { return home + "/jobs"; }
  [[nodiscard]] std::string journal_path() const { return home + "/journal"; }
  [[nodiscard]] std::string gang_journal_path() const { return home + "/gang-journal"; }
  [[nodiscard]] std::string vault_folder() const { return vault_dir.empty() ? home + "/vault" : vault_dir; }
  // Empty: there is no tier in memory.
  [[nodiscard]] std::string vault_memory_folder() const {
    return vault_memory.empty() ? "" : vault_memory + "/" + node;
  }
};

// Reads and checks the file; kInvalidArgument names file, line or key, and what is expected there.
Result<Config> load_config(const std::string& path);

// The same from text; `source` names it in errors.
Result<Config> parse_config(std::string_view text, const std::string& source);

// The value of CUDA_VISIBLE_DEVICES (may be null) as machine-wide indices. Like the driver it ends at the
// first thing that is no index; UUIDs are not understood and give kNotSupported.
Result<std::vector<std::uint32_t>> parse_visible_gpus(const char* text);

// Names of nodes and jobs become folder names: letters, digits, '-', '_', '.', 1..63, not beginning with '.'.
[[nodiscard]] bool is_safe_name(std::string_view name);

}  // namespace ckpt::agent
