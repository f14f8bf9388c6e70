// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/jobs/cluster.h"

#include <fcntl.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "libckpt/base/fd.h"
#include "tools/bench/jobs/steps.h"
#include "tools/gpumigrate/local/processes.h"

namespace ckpt::bench {
namespace {

constexpr Nanos kPatience = 180'000'000'000;  // the time limit of a command in nanoseconds; a command that
                                              // hangs is a failure, not a measurement
constexpr std::uint64_t kSpareMemory = std::uint64_t{1} << 30;
constexpr std::size_t kShownLogBytes = 2000;

Error wrong(const Command& command, const CommandOutput& output) {
  std::string said = output.err + output.out;
  if (said.size() > kShownLogBytes) said = said.substr(said.size() - kShownLogBytes);
  return Error(ErrorCode::kAborted,
               command.text() + " ended with " + std::to_string(output.exit_code) + ": " + said);
}

Result<std::string> make_home() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  std::string home = (error ? std::filesystem::path("/tmp") : folder) / "gpumigrate-bench-XXXXXX";
  if (::mkdtemp(home.data()) == nullptr) return Error::from_errno("Cannot create a folder like " + home);
  return home;
}

// Parses "2026-01-01T00:00:00.000Z" into seconds since 1970. Returns 0 for any other text.
double seconds_of(const std::string& text) {
  std::tm time{};
  int milliseconds = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &time.tm_year, &time.tm_mon, &time.tm_mday,
                  &time.tm_hour, &time.tm_min, &time.tm_sec, &milliseconds) != 7)
    return 0;
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  return static_cast<double>(::timegm(&time)) + milliseconds / 1e3;
}

std::string text_of(const Json& object, const char* name) {
  const auto at = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

Result<double> number_of(const Json& object, const char* name) {
  const auto at = object.is_object() ? object.find(name) : object.end();
  const double value = object.is_object() && at != object.end() && at->is_number() ? at->get<double>() : -1;
  if (!std::isfinite(value) || value < 0)
    return Error(ErrorCode::kCorrupt, std::string("The report has no number \"") + name + "\"");
  return value;
}

struct Field {
  const char* name;
  double Move::*member;
};

Result<void> read_fields(const Json& object, std::span<const Field> fields, Move& move) {
  for (const Field& field : fields) {
    CKPT_TRY(value, number_of(object, field.name));
    move.*field.member = value;
  }
  return ok();
}

Result<Move> must_be_done(Move move, const std::string& job) {
  if (move.result == "done") return move;
  return Error(ErrorCode::kAborted, "The migration " + move.id + " of " + job + " ended as " + move.result +
                                        (move.error.empty() ? "" : ": " + move.error));
}

}  // namespace

Result<Move> parse_move(const Json& report) {
  static constexpr Field kFields[] = {{"downtime_ms", &Move::downtime_ms},
                                      {"bound_ms", &Move::bound_ms},
                                      {"total_ms", &Move::total_ms},
                                      {"scan_ms", &Move::scan_ms},
                                      {"copy_ms", &Move::copy_ms},
                                      {"rounds", &Move::rounds},
                                      {"state_bytes", &Move::state_bytes},
                                      {"sent_bytes", &Move::sent_bytes},
                                      {"wire_bytes", &Move::wire_bytes},
                                      {"dirty_bytes", &Move::dirty_bytes},
                                      {"link_bytes_per_second", &Move::link_rate},
                                      {"scan_bytes_per_second", &Move::scan_rate}};
  static constexpr Field kPieces[] = {{"quiesce", &Move::quiesce_ms}, {"final", &Move::final_ms},
                                      {"verify", &Move::verify_ms},   {"commit", &Move::commit_ms},
                                      {"context", &Move::context_ms}, {"host", &Move::host_ms},
                                      {"restore", &Move::restore_ms}, {"resume", &Move::resume_ms}};
  Move move;
  move.id = text_of(report, "id");
  move.result = text_of(report, "result");
  move.bound_by = text_of(report, "bound_by");
  move.error = text_of(report, "error");
  if (move.id.empty() || move.result.empty())
    return Error(ErrorCode::kCorrupt, "gpumigrate migrate printed no report of a migration");
  if (move.result != "done") return move;
  CKPT_TRYV(read_fields(report, kFields, move));
  const auto pieces = report.find("downtime_breakdown_ms");
  if (pieces == report.end())
    return Error(ErrorCode::kCorrupt, "The report of a migration has no downtime_breakdown_ms");
  CKPT_TRYV(read_fields(*pieces, kPieces, move));
  return move;
}

Result<std::unique_ptr<Cluster>> Cluster::start(const std::string& program_folder, std::uint64_t state_bytes,
                                                int software_gpus) {
  CKPT_TRY(home, make_home());
  std::unique_ptr<Cluster> cluster(new Cluster(program_folder, home));
  CKPT_TRYV(cluster->up(state_bytes, software_gpus));
  return cluster;
}

Cluster::~Cluster() {
  // This command runs to its end even after an interrupt. A cluster that does not stop leaves processes and
  // files behind.
  (void)run_command(command({"local", "down"}), nullptr, kPatience);
  const char* keep = std::getenv("GPUMIGRATE_KEEP");
  if (keep != nullptr && *keep != '\0') return;
  std::error_code error;
  std::filesystem::remove_all(home_, error);
}

Result<void> Cluster::up(std::uint64_t state_bytes, int software_gpus) {
  CKPT_TRY(interrupts, Interrupts::create());
  interrupts_ = std::move(interrupts);
  CKPT_TRY(state, ask({"local", "up", "--nodes", "2", "--gpus", std::to_string(software_gpus), "--gpu-memory",
                       std::to_string(2 * state_bytes + kSpareMemory)}));
  const auto software = state.find("software_gpu");
  software_gpu_ = software != state.end() && software->is_boolean() && software->get<bool>();
  return choose_places();
}

// Chooses the two places of moves. If a machine has two GPUs, jobs move from the first GPU of one node to the
// second GPU of the other. Otherwise, they move between two agents that share the GPU.
Result<void> Cluster::choose_places() {
  CKPT_TRY(gpus, ask({"gpus"}));
  int of_second_node = 0;
  int of_first_node = 0;
  for (const Json& gpu : gpus) (text_of(gpu, "node") == "node-b" ? of_second_node : of_first_node)++;
  second_gpu_ = of_first_node > 1;
  places_[0] = "node-a:0";
  places_[1] = of_second_node > 1 ? "node-b:1" : "node-b:0";
  return ok();
}

Command Cluster::command(const Arguments& arguments) const {
  Command command;
  command.argv = {program_folder_ + "/gpumigrate"};
  command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
  command.environment = cli::environment_with({"GPUMIGRATE_HOME=" + home_});
  return command;
}

Result<CommandOutput> Cluster::run(const Arguments& arguments, bool must_succeed) {
  const Command wanted = command(arguments);
  CKPT_TRY(output, run_command(wanted, interrupts_.get(), kPatience));
  if (must_succeed && output.exit_code != 0) return wrong(wanted, output);
  return std::move(output);
}

Result<Json> Cluster::ask(Arguments arguments) {
  arguments.insert(arguments.end(), {"-o", "json"});
  CKPT_TRY(output, run(arguments, true));
  Json answer = Json::parse(output.out, nullptr, false);
  if (answer.is_discarded()) return Error(ErrorCode::kCorrupt, "No JSON from " + command(arguments).text());
  return answer;
}

Result<std::string> Cluster::run_job(const std::string& program, const Arguments& arguments) {
  return start_job(program, arguments, true);
}

Result<std::string> Cluster::run_lasting_job(const std::string& program, const Arguments& arguments) {
  return start_job(program, arguments, true, Lasts::kUntilLetEnd);
}

Result<void> Cluster::let_end(const std::string& job) {
  const UniqueFd file(::open(hurry_file(job).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return Error::from_errno("Making " + hurry_file(job));
  return ok();
}

Result<std::string> Cluster::run_plain_job(const std::string& program, const Arguments& arguments) {
  return start_job(program, arguments, false);
}

Result<std::string> Cluster::start_job(const std::string& program, const Arguments& arguments,
                                       bool cooperative, Lasts lasts) {
  const std::string name = program + "-" + std::to_string(++jobs_);
  Arguments call = {"run", "--detach", "--name", name, "--node", places_[0]};
  if (cooperative) call.emplace_back("--cooperative");
  if (lasts == Lasts::kUntilLetEnd)
    call.insert(call.end(), {"--env", "GPUMIGRATE_TEST_HURRY=" + hurry_file(name)});
  call.insert(call.end(), {"--", program_folder_ + "/examples/" + program});
  call.insert(call.end(), arguments.begin(), arguments.end());
  CKPT_TRYV(run(call, true));
  runs_at_[name] = 0;
  return name;
}

Result<void> Cluster::wait_for_steps(const std::string& job, std::uint64_t more) {
  CKPT_TRY(before, log(job));
  const std::vector<StepLine> known = parse_steps(before);
  const std::uint64_t wanted = (known.empty() ? 0 : known.back().step) + more;
  const Nanos deadline = now_ns() + kPatience;
  CKPT_TRY(follower, RunningCommand::start(command({"logs", job, "-f"}), interrupts_.get()));
  for (;;) {
    CKPT_TRY(line, follower->read_line(deadline));
    if (!line)
      return Error(ErrorCode::kAborted, "The job " + job + " ended before step " + std::to_string(wanted));
    const auto step = parse_step(*line);
    if (step && step->step >= wanted) return ok();
  }
}

Result<std::string> Cluster::why_not_movable(const std::string& job) {
  CKPT_TRY(output, run({"migrate", job, "--to", places_[1 - runs_at_[job]], "--dry-run"}, false));
  if (output.exit_code == 0) return std::string();
  const std::string& said = output.err.empty() ? output.out : output.err;
  return said.substr(0, said.find('\n'));
}

Result<Move> Cluster::migrate_to(const std::string& job, const std::string& place, const Arguments& options) {
  Arguments call = {"migrate", job, "--to", place, "-o", "json"};
  call.insert(call.end(), options.begin(), options.end());
  CKPT_TRY(output, run(call, false));
  const Json report = Json::parse(output.out, nullptr, false);
  if (report.is_discarded()) return wrong(command(call), output);
  return parse_move(report);
}

Result<Move> Cluster::migrate(const std::string& job, const Arguments& options) {
  int& place = runs_at_[job];
  CKPT_TRY(move, migrate_to(job, places_[1 - place], options));
  if (move.result == "done") place = 1 - place;
  return std::move(move);
}

Result<Move> Cluster::migrate_done(const std::string& job, const Arguments& options) {
  CKPT_TRY(move, migrate(job, options));
  return must_be_done(std::move(move), job);
}

Result<Move> Cluster::swap_done(const std::string& job, bool to_second, const Arguments& options) {
  CKPT_TRY(move, migrate_to(job, to_second ? "node-a:1" : "node-a:0", options));
  return must_be_done(std::move(move), job);
}

Result<Snapshot> Cluster::snapshot(const std::string& job) {
  CKPT_TRY(task, ask({"snapshot", job, "--to", checkpoint_store()}));
  const auto at = task.is_object() ? task.find("report") : task.end();
  if (!task.is_object() || at == task.end())
    return Error(ErrorCode::kCorrupt, "The snapshot of " + job + " has no report");
  Snapshot snapshot;
  CKPT_TRY(pause, number_of(*at, "pause_ms"));
  CKPT_TRY(dirty, number_of(*at, "dirty_bytes"));
  CKPT_TRY(written, number_of(*at, "written_bytes"));
  snapshot.pause_ms = pause;
  snapshot.dirty_bytes = dirty;
  CKPT_TRY(state, number_of(*at, "state_bytes"));
  snapshot.written_bytes = written;
  snapshot.state_bytes = state;
  return snapshot;
}

Result<void> Cluster::protect(const std::string& job, const std::string& every) {
  CKPT_TRYV(run({"protect", job, "--every", every, "--to", checkpoint_store()}, true));
  return ok();
}

Result<void> Cluster::unprotect(const std::string& job) {
  CKPT_TRYV(run({"unprotect", job}, true));
  return ok();
}

Result<std::uint64_t> Cluster::newest_version(const std::string& job) {
  CKPT_TRY(images, ask({"images"}));
  double newest = 0;
  for (const Json& image : images) {
    if (text_of(image, "job_name") != job) continue;
    CKPT_TRY(version, number_of(image, "version"));
    newest = std::max(newest, version);
  }
  return static_cast<std::uint64_t>(newest);
}

Result<double> Cluster::restore(const std::string& job) {
  constexpr int kRestored = 3;  // the exit code if work since the image is lost, as expected here
  int& place = runs_at_[job];
  const Arguments call = {"restore", job, "--accept-loss", "--to", places_[1 - place], "-o", "json"};
  CKPT_TRY(output, run(call, false));
  const Json task = Json::parse(output.out, nullptr, false);
  if (output.exit_code != kRestored || !task.is_object() || !task.contains("restored"))
    return wrong(command(call), output);
  place = 1 - place;
  return number_of(task["restored"], "fill_ms");
}

Result<void> Cluster::stop(const std::string& job) {
  CKPT_TRYV(run({"stop", job}, true));
  return ok();
}

Result<void> Cluster::wait(const std::string& job) {
  CKPT_TRYV(run({"wait", job}, true));
  return ok();
}

Result<std::string> Cluster::log(const std::string& job) {
  CKPT_TRY(output, run({"logs", job}, true));
  return std::move(output.out);
}

Result<std::map<std::string, Phases>> Cluster::phases() {
  CKPT_TRY(output, run({"events", "-o", "json"}, true));
  std::map<std::string, Phases> all;
  std::size_t at = 0;
  while (at < output.out.size()) {
    const std::size_t end = std::min(output.out.find('\n', at), output.out.size());
    const Json event = Json::parse(output.out.substr(at, end - at), nullptr, false);
    at = end + 1;
    const std::string text = text_of(event, "text");
    Phases& phases = all[text_of(event, "migration")];
    const double time = seconds_of(text_of(event, "time"));
    if (text_of(event, "kind") == "migration-begun") phases.begun = time;
    if (text_of(event, "kind") == "migration-ended") phases.ended = time;
    if (text_of(event, "kind") != "migration-phase") continue;
    if (text.ends_with(" is precopy")) phases.precopy = time;
    if (text.ends_with(" is granted")) phases.granted = time;
    if (text.ends_with(" is committed")) phases.committed = time;
  }
  return all;
}

}  // namespace ckpt::bench
