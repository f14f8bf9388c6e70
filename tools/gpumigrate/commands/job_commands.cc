// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>
#include <sstream>

#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/preloaded.h"
#include "libckpt/record/document.h"
#include "tools/common/moment.h"
#include "tools/common/units.h"
#include "tools/gpumigrate/client/job_environment.h"
#include "tools/gpumigrate/client/list_views.h"
#include "tools/gpumigrate/client/log_stream.h"
#include "tools/gpumigrate/client/views.h"
#include "tools/gpumigrate/client/wait.h"
#include "tools/gpumigrate/client/watch.h"
#include "tools/gpumigrate/commands/commands.h"

namespace ckpt::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string job_path(const std::string& job) {
  return "/v1/jobs/" + path_part(job);
}

Result<void> take_place(const std::string& place, Json& body) {
  const std::size_t colon = place.find(':');
  body["node"] = place.substr(0, colon);
  if (colon == std::string::npos) return ok();
  const std::string gpu = place.substr(colon + 1);
  unsigned index = 0;
  const auto [end, error] = std::from_chars(gpu.data(), gpu.data() + gpu.size(), index);
  if (error != std::errc{} || end != gpu.data() + gpu.size()) {
    return Error(ErrorCode::kInvalidArgument, "--node: \"" + place + "\" is neither NODE nor NODE:GPU");
  }
  body["gpu"] = index;
  return ok();
}

// Adds the number of ranks to the request: `gpus` for ranks on one node, or `ranks` and `nodes` for several
// nodes.
Result<void> add_ranks(const RunOptions& options, Json& body) {
  if (options.ranks == 0) {
    body["gpus"] = options.gpus;
    if (!options.nodes.empty()) return Error(ErrorCode::kInvalidArgument, "--nodes requires --ranks");
    return ok();
  }
  if (options.gpus != 1)
    return Error(
        ErrorCode::kInvalidArgument,
        "--gpus and --ranks cannot be combined: --gpus starts ranks on one node, --ranks on several");
  if (!options.node.empty())
    return Error(ErrorCode::kInvalidArgument,
                 "--ranks and --node cannot be combined: use --nodes with --ranks");
  body["ranks"] = options.ranks;
  if (options.nodes.empty()) return ok();
  Json nodes = Json::array();
  std::istringstream names(options.nodes);
  for (std::string name; std::getline(names, name, ',');) nodes.push_back(name);
  body["nodes"] = std::move(nodes);
  return ok();
}

// Makes the path of a program absolute: it is relative to the current folder, not to the job's.
std::string program_path(const std::string& program) {
  return program.find('/') == std::string::npos
             ? program
             : std::filesystem::absolute(program).lexically_normal().string();
}

Result<Json> request_of(const RunOptions& options) {
  Json body;
  std::vector<std::string> argv = options.command;
  argv[0] = program_path(argv[0]);
  body["argv"] = argv;
  body["cwd"] = options.cwd.empty() ? std::filesystem::current_path().string()
                                    : std::filesystem::absolute(options.cwd).lexically_normal().string();
  CKPT_TRY(env, job_environment({options.env, options.env_file, options.env_all}));
  body["env"] = std::move(env);
  if (!options.name.empty()) body["name"] = options.name;
  if (!options.node.empty()) {
    CKPT_TRYV(take_place(options.node, body));
  }
  CKPT_TRYV(add_ranks(options, body));
  if (!options.communicators.empty()) body["communicators"] = options.communicators;
  if (!options.connections.empty()) body["connections"] = options.connections;
  body["mode"] = options.cooperative ? "cooperative" : "transparent";
  if (!options.namespaces.empty()) body["namespaces"] = options.namespaces;
  if (options.private_tmp) body["private_tmp"] = true;
  if (options.priority != 0) body["priority"] = options.priority;
  if (options.preempt) body["preempt"] = true;
  if (options.dry_run) body["dry_run"] = true;
  if (!options.gpu_memory.empty()) {
    if (options.gpu_memory.find_first_not_of("0123456789") == std::string::npos)
      return Error(ErrorCode::kInvalidArgument,
                   "--gpu-memory: \"" + options.gpu_memory + "\" needs a unit, like 12GiB");
    auto bytes = tools::parse_size(options.gpu_memory);
    if (!bytes) return Error(ErrorCode::kInvalidArgument, "--gpu-memory: " + bytes.error().message());
    body["gpu_memory_bytes"] = *bytes;
  }
  return body;
}

// A follower that waits for a job's end. It redials a lost coordinator for the context's patience, because
// the job can end without the coordinator.
class EndFollower {
 public:
  EndFollower(Context& context, std::string id, Wait& wait)
      : context_(context), id_(std::move(id)), wait_(wait) {}

  // Makes the wait also end for a job on a silent node, where the job may keep running.
  EndFollower& until_silent() {
    is_until_silent_ = true;
    return *this;
  }

  // Waits for the job's end. `known` means that the coordinator has answered for the job before. Otherwise a
  // failure of the first call is returned at once.
  Result<Json> follow(bool known) {
    for (;;) {
      auto job = context_.coordinator.get(job_path(id_) +
                                          "/wait?timeout_ms=" + std::to_string(wait_.next_call().count()));
      if (job) {
        const auto now = record::from_answer<api::Job>(*job);
        if (has_ended(now) || (is_until_silent_ && now.silent_node)) return *std::move(job);
        wait_.now_for("the end of job " + id_ + " (" + now.state + ")");
      }
      if (auto end = wait_.end()) return *std::move(end);
      if (job) {
        known = true;
        lost_since_.reset();
      } else {
        if (!known) return std::move(job).error();
        CKPT_TRYV(survive(std::move(job).error()));
      }
    }
  }

 private:
  Result<void> survive(Error error) {
    if (error.code() != ErrorCode::kUnavailable && error.code() != ErrorCode::kTimedOut) return error;
    if (!lost_since_) {
      context_.note(error.message() + "; retrying. The job is not affected");
      lost_since_ = Clock::now();
    }
    if (Clock::now() - *lost_since_ >= context_.patience)
      return Error(ErrorCode::kTimedOut,
                   "The outcome of job " + id_ + " is unknown; `gpumigrate wait " + id_ + "` asks again")
          .caused_by(std::move(error));
    context_.coordinator.http().pause(HttpClient::kRedialInterval);
    return ok();
  }

  Context& context_;
  std::string id_;
  Wait& wait_;
  bool is_until_silent_ = false;
  std::optional<Clock::time_point> lost_since_;
};

// The numbers of moves and events that `describe` shows.
constexpr std::size_t kMovesShown = 3;
constexpr std::size_t kEventsShown = 5;

WaitSubject end_of(const std::string& job, const std::string& goes_on) {
  return {"the end of job " + job, goes_on + "; `gpumigrate wait " + job + "` waits again"};
}

int job_exit_code(Context& context, const Json& answer) {
  const auto job = record::from_answer<api::Job>(answer);
  if (job.state == "exited" && !job.exit_code) {
    context.note("Job " + job.id + ": " + job.reason.value_or("-"));
    return kUnknown;
  }
  if (job.reason && job.state != "exited")
    context.note("Job " + job.id + " " + job.state + ": " + *job.reason);
  return job.exit_code.value_or(kRunFailed);
}

// Shows the job's output until the job exits. The first Ctrl-C stops the job. The second Ctrl-C ends only the
// command.
Result<int> attend(Context& context, const std::string& id) {
  int interrupts = 0;
  const auto on_interrupt = [&]() -> Result<void> {
    if (++interrupts > 1) {
      return Error(ErrorCode::kAborted,
                   "Stopped following job " + id + "; `gpumigrate wait " + id + "` waits for its end");
    }
    context.note("Interrupted: stopping job " + id + " (interrupt again to stop following it)");
    CKPT_TRYV(context.coordinator.post(job_path(id) + "/stop", Json::object()));
    return ok();
  };
  auto followed = LogStream(context, id).follow(on_interrupt);
  if (!followed) {
    if (followed.error().code() == ErrorCode::kAborted) return std::move(followed).error();
    // The output cannot be read, but the job's exit code still counts.
    context.note(followed.error().message());
  }
  Wait wait(context, end_of(id, "the job keeps running"));
  CKPT_TRY(job, EndFollower(context, id, wait).follow(true));
  return job_exit_code(context, job);
}

int print_job(Context& context, const Json& job) {
  if (context.json) {
    context.print(job);
  } else {
    context.out << view_jobs({record::from_answer<api::Job>(job)}, context.layout()) << std::flush;
  }
  return kDone;
}

// Prints one line about the job's end.
int print_end(Context& context, const Json& job) {
  if (context.json) return print_job(context, job);
  context.out << view_job_state(record::from_answer<api::Job>(job)) << std::flush;
  return kDone;
}

int print_run_plan(Context& context, const Json& body, bool each, Wait& wait) {
  auto plan = context.coordinator.post("/v1/jobs", body);
  if (!plan) return report_wait(context, wait, plan.error());
  wait.clear();
  const auto shown = record::from_answer<api::RunPlan>(*plan);
  if (context.json) {
    context.print(*plan);
  } else {
    context.out << view_run_plan(shown, each, context.layout()) << std::flush;
  }
  return shown.possible ? kDone : kRefused;
}

// Returns the start time of the process in clock ticks (field 22 of /proc/PID/stat), or 0 if there is no such
// process.
std::uint64_t start_ticks_of(int pid) {
  constexpr int kField = 22;
  auto stat = read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  const std::size_t name_end = stat ? stat->rfind(')') : std::string::npos;
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat->substr(name_end + 1));
  std::string field;
  for (int number = 3; number < kField; ++number) fields >> field;
  std::uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

// Returns the newest migrations, oldest first. Migrations that the coordinator has removed are omitted.
Result<std::vector<api::Migration>> newest_moves(Context& context, const std::vector<std::string>& ids,
                                                 std::size_t count) {
  std::vector<api::Migration> moves;
  for (std::size_t i = ids.size() - std::min(count, ids.size()); i < ids.size(); i++) {
    auto migration = context.coordinator.get("/v1/migrations/" + path_part(ids[i]));
    if (migration)
      moves.push_back(record::from_answer<api::Migration>(*migration));
    else if (migration.error().code() != ErrorCode::kNotFound)
      return std::move(migration).error();
  }
  return moves;
}

// Returns the job's newest events, oldest first.
Result<std::vector<api::Event>> newest_events(Context& context, const std::string& id) {
  std::vector<api::Event> newest;
  std::uint64_t since = 0;
  for (;;) {
    auto asked = context.coordinator.get("/v1/events?since=" + std::to_string(since) +
                                         "&limit=1000&follow_ms=0&job=" + path_part(id));
    const bool has_none = !asked && (asked.error().code() == ErrorCode::kNotFound ||
                                     asked.error().code() == ErrorCode::kNotSupported);
    if (has_none) return newest;
    CKPT_TRY(answer, std::move(asked));
    const auto events = record::list_from_answer<api::Event>(member(answer, "events"));
    if (events.empty()) return newest;
    newest.insert(newest.end(), events.begin(), events.end());
    if (newest.size() > kEventsShown)
      newest.erase(newest.begin(), newest.end() - static_cast<std::ptrdiff_t>(kEventsShown));
    since = static_cast<std::uint64_t>(number_of(answer, "next", static_cast<double>(since)));
  }
}

Result<std::chrono::nanoseconds> duration_option(const char* option, const std::string& text) {
  auto value = tools::parse_duration_ns(text);
  if (!value) return Error(ErrorCode::kInvalidArgument, std::string(option) + ": " + value.error().message());
  return std::chrono::nanoseconds(*value);
}

Result<std::unique_ptr<Wait>> wait_for_start(Context& context, const RunOptions& options) {
  WaitSubject subject{"a node to start the job", "`gpumigrate jobs` shows whether it has started"};
  if (options.dry_run) subject = {"the coordinator to choose a GPU", "nothing is started"};
  return Wait::begin(context, subject, options.timeout, WaitKind::kAnswer);
}

// Submits the job. After Ctrl-C before the answer, a job without --detach is stopped once its id is known.
Result<Json> submit(Context& context, const Json& body, bool detach, Wait& wait) {
  if (detach) return context.coordinator.post("/v1/jobs", body, 1);
  wait.note_first_interrupt(
      "Interrupted: the job is stopped once its id is known (interrupt again to keep it running)");
  return context.coordinator.post("/v1/jobs", body);
}

}  // namespace

// Warns if the library cannot be loaded into the program. The function checks the program on this machine,
// while the job's node may have a different program under the same path.
static void warn_of_missing_library(Context& context, const RunOptions& options) {
  if (options.cooperative) return;
  const char* path = std::getenv("PATH");
  const std::string cause =
      why_not_preloaded(program_path(options.command.front()), path == nullptr ? "" : path,
                        options.cwd.empty() ? "." : options.cwd, ::geteuid());
  if (!cause.empty())
    context.note(
        "warning: " + cause +
        ", so gpumigrate's library cannot be preloaded into the program. If the program uses the GPU itself, "
        "cuInit fails (304). Link the program dynamically, or run it with --cooperative");
}

int run_job(Context& context, const RunOptions& options) {
  if (options.command.empty()) {
    return report(context, Error(ErrorCode::kInvalidArgument,
                                 "run: name the program after --, like `gpumigrate run -- ./train`"));
  }
  auto body = request_of(options);
  if (!body) return report(context, body.error());
  auto begun = wait_for_start(context, options);
  if (!begun) return report(context, begun.error());
  std::unique_ptr<Wait> wait = *std::move(begun);
  if (options.dry_run) return print_run_plan(context, *body, options.each, *wait);
  auto job = submit(context, *body, options.detach, *wait);
  if (!job && wait->is_limit(job.error())) return report_wait(context, *wait, job.error());
  wait.reset();
  if (!job) {
    const int code = exit_code_of(job.error());
    const bool plain = options.detach || code == kRefused || code == kUsage || is_program_status(code);
    return report(context, job.error(), plain ? code : kRunFailed);
  }
  const auto started = record::from_answer<api::StartedJob>(*job);
  const std::string& id = started.job.id;
  context.err << view_displaced(started.displaced, "was ", context.layout()) << std::flush;
  warn_of_missing_library(context, options);
  if (options.detach) return print_job(context, *job);
  context.note("Job " + id + " (" + started.job.name + ") runs at " + place_of(started.job));
  if (options.gpus > 1)
    context.note("Output of rank 0; `gpumigrate logs " + id + " --rank N` shows the output of another rank");
  auto code = attend(context, id);
  if (code) return *code;
  return report(context, code.error(), kRunFailed);
}

int adopt_process(Context& context, const AdoptOptions& options) {
  auto wait = Wait::begin(context,
                          {"a node to adopt process " + std::to_string(options.pid),
                           "`gpumigrate jobs` shows whether it was adopted"},
                          options.timeout, WaitKind::kAnswer);
  if (!wait) return report(context, wait.error());
  Json body = {{"pid", options.pid}};
  if (!options.name.empty()) body["name"] = options.name;
  if (!options.node.empty()) {
    body["node"] = options.node;
  } else {
    // The start time identifies the process, because its id may be reused.
    const std::uint64_t ticks = start_ticks_of(options.pid);
    if (ticks == 0)
      return report(context, Error(ErrorCode::kRefused, "There is no process " + std::to_string(options.pid) +
                                                            " on this machine; name its node with --node"));
    auto boot = read_file("/proc/sys/kernel/random/boot_id", 64);
    if (!boot) return report(context, boot.error());
    std::string machine = *std::move(boot);
    machine.resize(machine.find_last_not_of('\n') + 1);
    body["machine"] = machine;
    body["start_ticks"] = ticks;
  }
  auto job = context.coordinator.post("/v1/adopt", body, 1);
  if (!job) return report_wait(context, **wait, job.error());
  (*wait)->clear();
  return print_job(context, *job);
}

int describe_job(Context& context, const std::string& name, bool all) {
  auto job = context.coordinator.get(job_path(name));
  if (!job) return report(context, job.error());
  if (context.json) {
    context.print(*job);
    return kDone;
  }
  const auto detail = record::from_answer<api::JobDetail>(*job);
  auto moves = newest_moves(context, detail.migrations, all ? kUnlimited : kMovesShown);
  if (!moves) return report(context, moves.error());
  auto events = newest_events(context, detail.job.id);
  if (!events) return report(context, events.error());
  context.out << view_job(detail, *moves, *events, all, context.layout()) << std::flush;
  return kDone;
}

// Explains an empty log if the job is of a kind that never has a log.
static void explain_empty_log(Context& context, const std::string& job) {
  auto shown = context.coordinator.get(job_path(job));
  if (shown && record::from_answer<api::Job>(*shown).mode == "adopted")
    context.note("Job " + job + " was adopted and has no log: its output still goes where it went before");
}

int show_logs(Context& context, const std::string& job, const LogOptions& options) {
  LogWish wish{.timestamps = options.timestamps, .rank = options.rank};
  if (!options.since.empty()) {
    auto since = tools::parse_moment_ms(options.since, wall_clock_ms());
    if (!since)
      return report(context, Error(ErrorCode::kInvalidArgument, "--since: " + since.error().message()));
    wish.since_ms = *since;
  }
  if (options.follow) context.coordinator.http().catch_interrupts();
  LogStream stream(context, job, wish);
  if (options.tail) {
    auto shown = stream.copy_tail(*options.tail);
    if (!shown) return report(context, shown.error());
    if (!options.follow) return kDone;
  }
  if (!options.follow) {
    bool empty = true;
    do {
      auto more = stream.next(std::chrono::milliseconds(0));
      if (!more) return report(context, more.error());
      empty = empty && !stream.copied();
    } while (stream.copied());
    if (empty) explain_empty_log(context, job);
    return kDone;
  }
  // A job that does not exist is refused at once. Only later failures are retried.
  auto first = stream.next(std::chrono::milliseconds(0));
  const bool is_interrupted = !first && first.error().code() == ErrorCode::kAborted;
  if (!first && !is_interrupted) return report(context, first.error());
  if (first && !*first) return kDone;
  auto done = stream.follow([&job]() -> Result<void> {
    return Error(ErrorCode::kAborted,
                 "Job " + job + " keeps running; `gpumigrate logs " + job + " -f` follows it");
  });
  return done ? kDone : report(context, done.error());
}

// Removes each job, even if the coordinator refuses to remove another job.
int remove_jobs(Context& context, const std::vector<std::string>& names) {
  int worst = kDone;
  Json removed = Json::array();
  for (const std::string& name : names) {
    auto answer = context.coordinator.remove(job_path(name));
    if (!answer) {
      worst = std::max(worst, report(context, answer.error()));
      continue;
    }
    removed.push_back(member(*answer, "removed"));
    if (!context.json)
      context.out << "job " << printable(text_of(*answer, "removed")) << " is removed\n" << std::flush;
  }
  if (context.json) context.print({{"removed", removed}});
  return worst;
}

int stop_job(Context& context, const std::string& name, const std::string& grace,
             const std::string& timeout) {
  Json body = Json::object();
  if (!grace.empty()) {
    auto time = duration_option("--grace", grace);
    if (!time) return report(context, time.error());
    body["grace_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(*time).count();
  }
  auto wait = Wait::begin(context, end_of(name, "the job is still being stopped"), timeout);
  if (!wait) return report(context, wait.error());
  auto job = context.coordinator.post(job_path(name) + "/stop", body, 1);
  if (!job) return report(context, job.error());
  (*wait)->now_for("the end of job " + name + " (stopping)");
  auto ended = std::move(job);
  const auto ordered = record::from_answer<api::Job>(*ended);
  if (!ordered.silent_node) ended = EndFollower(context, ordered.id, **wait).until_silent().follow(true);
  if (!ended) return report(context, ended.error());
  (*wait)->clear();
  print_end(context, *ended);
  const auto end = record::from_answer<api::Job>(*ended);
  if (!end.silent_node) return kDone;
  context.note("Job " + end.id + ": " + end.reason.value_or("-"));
  return kUnknown;
}

int wait_for_job(Context& context, const std::string& name, const std::string& timeout) {
  auto wait = Wait::begin(context, end_of(name, "the job keeps running"), timeout);
  if (!wait) return report(context, wait.error());
  auto job = EndFollower(context, name, **wait).follow(false);
  if (!job) {
    const int code = report(context, job.error());
    return code == kInterrupted && (*wait)->is_over_time() ? kTimedOutWaiting : code;
  }
  (*wait)->clear();
  print_end(context, *job);
  return job_exit_code(context, *job);
}

}  // namespace ckpt::cli
