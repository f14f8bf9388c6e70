// SPDX-License-Identifier: Apache-2.0
// A cluster of the bench: `gpumigrate local up` in a temporary home. The gpumigrate command drives it as an
// operator would. It is always stopped and removed at its end. The figures that moves report are returned as
// checked numbers.
//
//   CKPT_TRY(cluster, Cluster::start(options.program_folder, options.bytes));
//   CKPT_TRY(job, cluster->run_job("hotset", {"--steps", "0"}));
//   CKPT_TRYV(cluster->wait_for_steps(job, 10));
//   CKPT_TRY(move, cluster->migrate(job, {"--live", "--bandwidth", "1GiB/s"}));
//
// If GPUMIGRATE_KEEP is set to any value, the home with all logs is kept for debugging. Nothing sleeps: each
// wait is a command that ends after an event, or a line of a job's log.
// Threads: one. Errors: those that the command printed; kTimedOut, kAborted as in command.h. Spans are in
// milliseconds, as in the reports.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "tools/bench/jobs/command.h"

namespace ckpt::bench {

using Json = nlohmann::ordered_json;
using Arguments = std::vector<std::string>;

// The final report of one migration (docs/api.md).
struct Move {
  std::string id;
  std::string result;  // the result: "done", "failed", ...
  std::string bound_by;
  std::string error;  // the error, unless the result is "done"
  double downtime_ms = 0;
  double bound_ms = 0;
  double total_ms = 0;
  double quiesce_ms = 0;
  double final_ms = 0;
  double verify_ms = 0;
  double commit_ms = 0;
  double context_ms = 0;  // the driver's checkpoint, for a program that does not use ckpt.h
  double host_ms = 0;     // the transfer of host memory to the other node, for a program that does not use
                          // ckpt.h
  double restore_ms = 0;
  double resume_ms = 0;
  double scan_ms = 0;
  double copy_ms = 0;
  double rounds = 0;
  double state_bytes = 0;
  double sent_bytes = 0;
  double wire_bytes = 0;
  double dirty_bytes = 0;
  double link_rate = 0;  // the rate of the link in bytes per second, as measured by the move
  double scan_rate = 0;
};
// Parses a report. Returns kCorrupt naming a field that is missing, negative or no number. A move that did
// not end with "done" has no figures.
Result<Move> parse_move(const Json& report);

// The times at which a migration reached its phases, as wall clock in seconds since 1970; 0: not reached.
struct Phases {
  double begun = 0;
  double precopy = 0;
  double granted = 0;
  double committed = 0;
  double ended = 0;
};

// One move of ranks of a job. Each time is the longest among the ranks.
struct RanksMove {
  std::string id;          // the migration id of the first rank
  double downtime_ms = 0;  // the longest downtime of the moved ranks
  double waited_ms = 0;    // the longest pause of ranks that stayed; 0: none stayed
  double skew_ms = 0;      // the time between the first and the last rank at the common barrier
  double communicators_ms = 0;
};

// One image, according to the report of its snapshot.
struct Snapshot {
  double pause_ms = 0;
  double dirty_bytes = 0;
  double written_bytes = 0;
  double state_bytes = 0;
};

class Cluster {
 public:
  // Starts a cluster of two nodes. Without a real GPU, each node has `software_gpus` software GPUs with
  // memory for two jobs of `state_bytes`.
  static Result<std::unique_ptr<Cluster>> start(const std::string& program_folder, std::uint64_t state_bytes,
                                                int software_gpus = 1);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  [[nodiscard]] bool software_gpu() const noexcept { return software_gpu_; }

  // Starts the example `program`, which uses ckpt.h and logs a line for every `--print-every` steps. Returns
  // the job's name.
  Result<std::string> run_job(const std::string& program, const Arguments& arguments);
  // Starts a job like run_job(). The job lasts until let_end(), however slow this machine is, because the
  // second half of its steps is slow until then.
  Result<std::string> run_lasting_job(const std::string& program, const Arguments& arguments);
  Result<void> let_end(const std::string& job);
  // Starts a job like run_job(), with an example that does not use ckpt.h.
  Result<std::string> run_plain_job(const std::string& program, const Arguments& arguments);
  // Returns why the job cannot move to the other place; empty: it can move.
  Result<std::string> why_not_movable(const std::string& job);
  // Waits until the job has printed a step that is at least `more` above the last printed one.
  Result<void> wait_for_steps(const std::string& job, std::uint64_t more);
  // Moves the job to the place where it does not run, with these options. Returns the report, whatever the
  // result is.
  Result<Move> migrate(const std::string& job, const Arguments& options);
  // Moves the job like migrate(). Any result other than "done" is an error.
  Result<Move> migrate_done(const std::string& job, const Arguments& options);
  // Returns whether the node where jobs start has two GPUs. swap_done() moves a job on such a node to the
  // second GPU, or back to the first.
  [[nodiscard]] bool has_second_gpu() const noexcept { return second_gpu_; }
  Result<Move> swap_done(const std::string& job, bool to_second, const Arguments& options);
  // Starts `ranks` ranks of the example `program`, all on the node where jobs start. `environment` has
  // NAME=VALUE entries.
  Result<std::string> run_ranks(const std::string& program, int ranks, const Arguments& environment,
                                const Arguments& arguments);
  // Moves these ranks ("2,3"; empty: all) to the node. Any result other than "done" is an error.
  Result<RanksMove> move_ranks(const std::string& job, const std::string& ranks, const std::string& node);
  // Returns the folder of all files of this cluster.
  [[nodiscard]] std::string home() const { return home_; }
  // Takes an image of the job into checkpoint_store(). Any result other than "done" is an error.
  Result<Snapshot> snapshot(const std::string& job);
  // Starts the protection of the job: images are taken into checkpoint_store() at the interval `every` until
  // unprotect(). `every` has the form of the command's option.
  Result<void> protect(const std::string& job, const std::string& every);
  Result<void> unprotect(const std::string& job);
  // Returns the version of the job's newest image; 0: none.
  Result<std::uint64_t> newest_version(const std::string& job);
  // Ends the job and starts it from its newest image at the other place. Returns the time for reading its
  // memory from the image, in milliseconds.
  Result<double> restore(const std::string& job);
  [[nodiscard]] std::string checkpoint_store() const { return home_ + "/vault"; }
  // Sends SIGTERM and waits until the job has exited.
  Result<void> stop(const std::string& job);
  // Waits until the job has exited on its own, with exit code 0.
  Result<void> wait(const std::string& job);
  Result<std::string> log(const std::string& job);
  // Returns the phase times of all migrations so far, by the migration's id.
  Result<std::map<std::string, Phases>> phases();

 private:
  Cluster(std::string program_folder, std::string home)
      : program_folder_(std::move(program_folder)), home_(std::move(home)) {}
  Result<void> up(std::uint64_t state_bytes, int software_gpus);
  Result<void> choose_places();
  enum class Lasts : bool { kNo, kUntilLetEnd };
  Result<std::string> start_job(const std::string& program, const Arguments& arguments, bool cooperative,
                                Lasts lasts = Lasts::kNo);
  [[nodiscard]] std::string hurry_file(const std::string& job) const { return home_ + "/hurry-" + job; }
  Result<Move> migrate_to(const std::string& job, const std::string& place, const Arguments& options);
  [[nodiscard]] Command command(const Arguments& arguments) const;
  Result<CommandOutput> run(const Arguments& arguments, bool must_succeed);
  Result<Json> ask(Arguments arguments);
  Result<std::optional<RanksMove>> measured_move(const std::string& id);

  std::string program_folder_;
  std::string home_;
  std::unique_ptr<Interrupts> interrupts_;
  bool software_gpu_ = false;
  bool second_gpu_ = false;
  std::string places_[2];               // the two places, as NODE:GPU
  std::map<std::string, int> runs_at_;  // the index of each job's current place
  int jobs_ = 0;
};

}  // namespace ckpt::bench
