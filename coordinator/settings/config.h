// SPDX-License-Identifier: Apache-2.0
// Settings of the coordinator: defaults, a TOML file (keys in docs/api.md), the command line's --home.
// Pure but for reading the file. Errors: kInvalidArgument naming the key; unknown keys are refused.
#pragma once

#include <cstdint>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/tls/cert_identity.h"

namespace ckpt::coordinator {

struct Config {
  std::string home;           // absolute once loaded
  std::string api_address;    // empty: the Unix socket alone
  std::string agent_address;  // empty: agents.sock in the folder
  tls::CertFiles tls;         // empty: no TLS, and no TCP
  std::string
      certificate_authority;  // a folder with ca.pem and ca.key: certificates are renewed; empty: they are not
  std::int64_t certificate_check_ms = 600'000;  // so often their ends are looked at
  bool metrics_without_token = false;
  std::string log_level = "info";
  std::string log_file;       // empty: standard error
  std::string fence_command;  // empty: --fenced is the operator's statement alone (fence_command.h)
  std::int64_t lease_term_ms = 10000;
  std::int64_t switch_timeout_ms = 10000;
  std::int64_t agent_idle_timeout_ms = 10000;
  std::int64_t placement_margin_bytes = std::int64_t{64} << 20;
  std::int64_t evacuation_live_deadline_ms = 30000;
  std::int64_t evacuation_parallel = 4;
  std::int64_t evacuation_breaker_count = 20;
  std::int64_t evacuation_breaker_window_ms = 600000;
  std::int64_t evacuation_attempts_per_job = 3;        // within an hour
  std::int64_t image_timeout_ms = 3'600'000;           // for a suspend, restore or resume
  std::int64_t vault_timeout_ms = 60'000;              // a suspend does not wait longer for the vault's node
  std::int64_t ended_images_max_age_ms = 604'800'000;  // images go so long after their job's end
  std::int64_t ended_images_kept = 1000;  // more images of ended jobs go: those whose job ended first
  std::int64_t ended_jobs_kept = 1000;    // older ones are forgotten, their images are not
  std::int64_t closed_migrations_kept = 2000;
  std::int64_t events_kept = 10000;
  std::int64_t findings_kept = 5000;
  std::int64_t ended_evacuations_kept = 1000;
  std::int64_t ended_drains_kept = 200;
  std::int64_t kept_output_mib = 1024;  // of the ends of jobs' logs; 0: none
  std::int64_t output_copy_interval_ms = 10'000;
  std::int64_t history_kept_days = 30;  // of all these; 0: their numbers alone count

  bool tagged_ids = true;  // no key: tests that name ids have none

  [[nodiscard]] std::string folder() const { return home + "/coordinator"; }
};

// GPUMIGRATE_HOME, or ~/.local/share/gpumigrate.
[[nodiscard]] std::string default_home();
// The text of a configuration file; `source` is named in errors. An absent key has its default, `home` is
// empty then.
Result<Config> parse_config(const std::string& text, const std::string& source);
// Empty arguments: the defaults. `home` given on the command line wins over the file's.
Result<Config> load_config(const std::string& config_path, const std::string& home);

}  // namespace ckpt::coordinator
