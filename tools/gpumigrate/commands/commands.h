// SPDX-License-Identifier: Apache-2.0
// The commands. Each prints its result and returns the program's exit code. It checks the texts that it gets
// from the command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

class CommandTree;

struct RunOptions {
  std::vector<std::string> command;
  std::string name;
  std::string node;  // NODE or NODE:GPU
  int gpus = 1;
  int ranks = 0;  // 0: `gpus` is the number of ranks
  std::string nodes;
  std::string communicators;
  std::string gpu_memory;
  bool cooperative = false;
  std::vector<std::string> env;
  std::string env_file;
  bool env_all = false;
  std::string cwd;
  int priority = 0;
  bool preempt = false;
  bool dry_run = false;
  bool each = false;  // a dry run shows the reasons of each GPU
  bool detach = false;
  std::string timeout;  // limits the wait for the start
};

struct AdoptOptions {
  int pid = 0;
  std::string name;
  std::string node;  // if it is given, `pid` is that node's number
  std::string timeout;
};

struct MigrateOptions {
  std::string job;
  std::string ranks;  // numbers separated by commas; empty: all
  std::string to = "auto";
  bool stop_copy = false;
  std::string max_downtime;
  std::string if_not_converged;
  std::string communicators;
  std::string bandwidth;
  std::string network;
  std::uint64_t max_rounds = 0;
  std::string codec;
  std::string shadow_memory;
  std::string slowdown;
  std::string exec;   // the command of the program that continues
  std::string allow;  // words separated by commas
  std::string timeout;
  std::string reason;
  bool dry_run = false;
  bool each = false;  // a dry run shows the reasons of each GPU
  bool detach = false;
};

struct LogOptions {
  bool follow = false;
  std::optional<unsigned> tail;  // lines
  std::string since;
  bool timestamps = false;
  int rank = 0;  // the rank to show, if the job has several
};

struct EventOptions {
  bool follow = false;
  std::string since;
  std::string job;
  std::vector<std::string> types;
};

// Jobs.
int run_job(Context& context, const RunOptions& options);
int adopt_process(Context& context, const AdoptOptions& options);
int describe_job(Context& context, const std::string& job, bool all);
int show_logs(Context& context, const std::string& job, const LogOptions& options);
int remove_jobs(Context& context, const std::vector<std::string>& jobs);
int stop_job(Context& context, const std::string& job, const std::string& grace, const std::string& timeout);
int wait_for_job(Context& context, const std::string& job, const std::string& timeout);

// Migrations.
int migrate_job(Context& context, const MigrateOptions& options);
int watch_migration(Context& context, const std::string& id, const std::string& timeout);
int abort_migration(Context& context, const std::string& id, const std::string& reason,
                    const std::string& timeout);
int set_limit(Context& context, const std::string& id, const std::string& what, const std::string& value);
int resolve_migration(Context& context, const std::string& id, const std::string& at,
                      const std::string& timeout);

// The cluster.
int show_events(Context& context, const EventOptions& options);
int show_version(Context& context);

// Each family declares its commands and their options.
void add_job_commands(CommandTree& tree);  // job_options.cc: run, adopt, jobs, describe, logs, stop, wait
void add_migration_commands(CommandTree& tree);  // migration_options.cc: migrate, watch, abort, set, resolve
void add_cluster_commands(CommandTree& tree);    // cluster_options.cc: nodes, gpus, events, version
void add_image_commands(CommandTree& tree);      // image_commands.cc
void add_recovery_commands(CommandTree& tree);   // cluster recover, cluster confirm
// The parents `cluster` and `node` of these must exist.
void add_join_commands(CommandTree& tree);         // node token, node join
void add_denial_commands(CommandTree& tree);       // cluster deny, denied, allow
void add_certificate_commands(CommandTree& tree);  // cluster init, certificate; node certificate
// The parents of these need not exist.
void add_drain_commands(CommandTree& tree);   // cordon, uncordon, drain, drains, node rm, node add
void add_backup_commands(CommandTree& tree);  // backup, backup show, restore
void add_policy_commands(CommandTree& tree);  // health, policy pause, resume, reset-breaker

}  // namespace ckpt::cli
