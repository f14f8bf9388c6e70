// SPDX-License-Identifier: Apache-2.0
// The commands. Each command checks the texts from the command line, prints its result and returns the
// program's exit code.
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
  std::string node;  // the target: NODE or NODE:GPU
  int gpus = 1;
  int ranks = 0;  // the number of ranks; 0: `gpus` is the number of ranks
  std::string nodes;
  std::string communicators;
  std::string connections;
  std::string gpu_memory;
  bool cooperative = false;
  std::string namespaces;
  bool private_tmp = false;
  std::vector<std::string> env;
  std::string env_file;
  bool env_all = false;
  std::string cwd;
  int priority = 0;
  bool preempt = false;
  bool dry_run = false;
  bool each = false;  // true: a dry run also shows the reasons of each GPU
  bool detach = false;
  std::string timeout;  // the value of --timeout, which limits the wait for the start
};

struct AdoptOptions {
  int pid = 0;
  std::string name;
  std::string node;  // if set, `pid` is a process id on that node
  std::string timeout;
};

struct MigrateOptions {
  std::string job;
  std::string ranks;  // the ranks, as comma-separated numbers; empty: all
  std::string to = "auto";
  bool stop_copy = false;
  std::string max_downtime;
  std::string if_not_converged;
  std::string communicators;
  std::string connections;
  std::string bandwidth;
  std::string network;
  std::uint64_t max_rounds = 0;
  std::string codec;
  std::string shadow_memory;
  std::string slowdown;
  std::string exec;   // the command of the program that continues
  std::string allow;  // the permitted differences, as comma-separated words
  std::string timeout;
  std::string reason;
  bool dry_run = false;
  bool each = false;  // true: a dry run also shows the reasons of each GPU
  bool detach = false;
};

struct LogOptions {
  bool follow = false;
  std::optional<unsigned> tail;  // the number of lines at the end of the log with which the output begins;
                                 // nullopt: the whole log
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

// These functions run the commands for jobs.
int run_job(Context& context, const RunOptions& options);
int adopt_process(Context& context, const AdoptOptions& options);
int describe_job(Context& context, const std::string& job, bool all);
int show_logs(Context& context, const std::string& job, const LogOptions& options);
int remove_jobs(Context& context, const std::vector<std::string>& jobs);
int stop_job(Context& context, const std::string& job, const std::string& grace, const std::string& timeout);
int wait_for_job(Context& context, const std::string& job, const std::string& timeout);

// These functions run the commands for migrations.
int migrate_job(Context& context, const MigrateOptions& options);
int watch_migration(Context& context, const std::string& id, const std::string& timeout);
int abort_migration(Context& context, const std::string& id, const std::string& reason,
                    const std::string& timeout);
int set_limit(Context& context, const std::string& id, const std::string& what, const std::string& value);
int resolve_migration(Context& context, const std::string& id, const std::string& at,
                      const std::string& timeout);

// These functions run the commands for the cluster.
int show_events(Context& context, const EventOptions& options);
int show_version(Context& context);

// Each of these functions declares the commands of one family and their options.
void add_job_commands(CommandTree& tree);  // job_options.cc: run, adopt, jobs, describe, logs, stop, wait
void add_migration_commands(CommandTree& tree);  // migration_options.cc: migrate, watch, abort, set, resolve
void add_cluster_commands(CommandTree& tree);    // cluster_options.cc: nodes, gpus, events, version
void add_image_commands(CommandTree& tree);      // image_commands.cc: the commands for images
void add_recovery_commands(CommandTree& tree);   // adds cluster recover and cluster confirm
// These functions add commands to the parents `cluster` and `node`, which must exist.
void add_join_commands(CommandTree& tree);         // adds node token and node join
void add_denial_commands(CommandTree& tree);       // adds cluster deny, cluster denied and cluster allow
void add_certificate_commands(CommandTree& tree);  // adds cluster init, cluster certificate and node
                                                   // certificate
// These functions add commands whose parents need not exist.
void add_drain_commands(CommandTree& tree);   // adds cordon, uncordon, drain, drains, node rm and node add
void add_backup_commands(CommandTree& tree);  // adds backup, backup show and backup restore
void add_policy_commands(CommandTree& tree);  // adds health and policy pause, resume and reset-breaker

}  // namespace ckpt::cli
