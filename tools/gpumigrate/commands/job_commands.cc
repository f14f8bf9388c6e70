// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>
#include <sstream>

#include "libckpt/base/fd.h"
#include "tools/common/units.h"
#include "tools/gpumigrate/client/views.h"
#include "tools/gpumigrate/client/watch.h"
#include "tools/gpumigrate/commands/commands.h"

extern char** environ;

namespace ckpt::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string job_path(const std::string& job) {
  return "/v1/jobs/" + path_part(job);
}

bool has_ended(const Json& job) {
  const std::string state = text_of(job, "state");
  return state == "exited" || state == "failed" || state == "lost";
}

// Which libraries and GPUs a program gets is a matter of the node it runs on, not of the shell it was
// submitted from.
bool belongs_to_node(std::string_view name) {
  constexpr std::array kNames = {"LD_LIBRARY_PATH", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES",
                                 "NVIDIA_VISIBLE_DEVICES"};
  constexpr std::array kPrefixes = {"CKPT_", "CUDASIM_", "GPUMIGRATE_"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](const char* prefix) { return name.starts_with(prefix); });
}

Result<Json> environment_of(const std::vector<std::string>& additions) {
  Json env = Json::object();
  for (char** entry = environ; *entry != nullptr; entry++) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || belongs_to_node(text.substr(0, equals))) continue;
    env[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const std::string& text : additions) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Error(ErrorCode::kInvalidArgument, "--env: \"" + text + "\" is not NAME=VALUE");
    }
    env[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return env;
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

// A program given by a path is meant from here, wherever the job's folder is.
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
  CKPT_TRY(env, environment_of(options.env));
  body["env"] = std::move(env);
  if (!options.name.empty()) body["name"] = options.name;
  if (!options.node.empty()) {
    CKPT_TRYV(take_place(options.node, body));
  }
  body["gpus"] = options.gpus;
  body["way"] = options.cooperative ? "cooperative" : "transparent";
  if (options.priority != 0) body["priority"] = options.priority;
  if (options.preempt) body["preempt"] = true;
  if (options.dry_run) body["dry_run"] = true;
  if (!options.gpu_memory.empty()) {
    auto bytes = tools::parse_size(options.gpu_memory);
    if (!bytes) return Error(ErrorCode::kInvalidArgument, "--gpu-memory: " + bytes.assume_error().message());
    body["gpu_memory_bytes"] = bytes.assume_value();
  }
  return body;
}

// Copies a job's output to `out` from its first byte to its end.
class LogStream {
 public:
  LogStream(Context& context, std::string job) : context_(context), job_(std::move(job)) {}

  // One call; false once the job has ended and all has been copied.
  Result<bool> next(std::chrono::milliseconds follow) {
    CKPT_TRY(piece, context_.coordinator.logs(job_, offset_, follow));
    context_.out.write(piece.bytes.data(), static_cast<std::streamsize>(piece.bytes.size())) << std::flush;
    copied_ = piece.next_offset > offset_;
    offset_ = piece.next_offset;
    return !piece.ended;
  }
  // Whether the last call brought bytes.
  [[nodiscard]] bool copied() const noexcept { return copied_; }

  // To the end, through moves and through any absence of the coordinator. `on_interrupt` may end it with an
  // error.
  template <typename OnInterrupt>
  Result<void> follow(OnInterrupt on_interrupt) {
    bool away = false;
    for (;;) {
      if (context_.coordinator.http().take_interrupts() > 0) {
        CKPT_TRYV(on_interrupt());
      }
      auto more = next(std::chrono::milliseconds(30'000));
      if (more) {
        away = false;
        if (!more.assume_value()) return ok();
        continue;
      }
      const ErrorCode code = more.assume_error().code();
      if (code == ErrorCode::kAborted) continue;
      if (code != ErrorCode::kUnavailable && code != ErrorCode::kTimedOut)
        return std::move(more).assume_error();
      if (!away)
        context_.note(more.assume_error().message() + "; the job does not depend on it, asking again");
      away = true;
      context_.coordinator.http().pause(std::chrono::milliseconds(500));
    }
  }

 private:
  Context& context_;
  std::string job_;
  std::uint64_t offset_ = 0;
  bool copied_ = false;
};

// Asks for a job's end. A coordinator that goes away meanwhile is dialled again for a while: the job ends
// without it.
class EndFollower {
 public:
  EndFollower(Context& context, std::string id) : context_(context), id_(std::move(id)) {}

  // `known`: the coordinator has answered for the job before; otherwise the first call's failure is told at
  // once.
  Result<Json> follow(Clock::time_point deadline, bool known) {
    for (;; known = true) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      const auto ask = std::clamp<std::int64_t>(left.count(), 0, 30'000);
      auto job = context_.coordinator.get(job_path(id_) + "/wait?timeout_ms=" + std::to_string(ask));
      if (!job) {
        if (!known) return std::move(job).assume_error();
        CKPT_TRYV(survive(std::move(job).assume_error(), deadline));
        continue;
      }
      lost_since_.reset();
      if (has_ended(job.assume_value())) return std::move(job).assume_value();
      if (Clock::now() >= deadline)
        return Error(ErrorCode::kAborted,
                     "job " + id_ + " has not ended yet (" + text_of(job.assume_value(), "state") + ")");
    }
  }

 private:
  Result<void> survive(Error error, Clock::time_point deadline) {
    if (error.code() != ErrorCode::kUnavailable && error.code() != ErrorCode::kTimedOut) return error;
    if (!lost_since_) {
      context_.note(error.message() + "; the job does not depend on it, asking again");
      lost_since_ = Clock::now();
    }
    if (Clock::now() - *lost_since_ >= context_.patience || Clock::now() >= deadline)
      return Error(ErrorCode::kTimedOut,
                   "How job " + id_ + " ends is not known; `gpumigrate wait " + id_ + "` asks again")
          .caused_by(std::move(error));
    context_.coordinator.http().pause(HttpClient::kRedialInterval);
    return ok();
  }

  Context& context_;
  std::string id_;
  std::optional<Clock::time_point> lost_since_;
};

constexpr Clock::time_point kNever = Clock::time_point::max() - std::chrono::hours(1);

int job_exit_code(Context& context, const Json& job) {
  if (text_of(job, "state") == "exited" && !has_value(job, "exit_code")) {
    context.note("job " + text_of(job, "id") + ": " + text_of(job, "reason"));
    return kUnknown;
  }
  if (has_value(job, "reason") && text_of(job, "state") != "exited") {
    context.note("job " + text_of(job, "id") + " " + text_of(job, "state") + ": " + text_of(job, "reason"));
  }
  return static_cast<int>(number_of(job, "exit_code", kRunFailed));
}

// Shows the job's output until it ends. Ctrl-C stops the job, the second one leaves it.
Result<int> attend(Context& context, const std::string& id) {
  int interrupts = 0;
  const auto on_interrupt = [&]() -> Result<void> {
    if (++interrupts > 1) {
      return Error(ErrorCode::kAborted,
                   "left job " + id + " alone; `gpumigrate wait " + id + "` waits for its end");
    }
    context.note("interrupted: stopping job " + id + " (once more: leave it alone)");
    CKPT_TRYV(context.coordinator.post(job_path(id) + "/stop", Json::object()));
    return ok();
  };
  auto followed = LogStream(context, id).follow(on_interrupt);
  if (!followed) {
    if (followed.assume_error().code() == ErrorCode::kAborted) return std::move(followed).assume_error();
    // Its output is out of reach; how it ends still counts.
    context.note(followed.assume_error().message());
  }
  CKPT_TRY(job, EndFollower(context, id).follow(kNever, true));
  return job_exit_code(context, job);
}

int print_job(Context& context, const Json& job) {
  if (context.json) {
    context.print(job);
  } else {
    context.out << view_jobs(Json::array({job})) << std::flush;
  }
  return kDone;
}

int print_run_plan(Context& context, const Json& body) {
  auto plan = context.coordinator.post("/v1/jobs", body);
  if (!plan) return report(context, plan.assume_error());
  if (context.json) {
    context.print(plan.assume_value());
  } else {
    context.out << view_run_plan(plan.assume_value()) << std::flush;
  }
  return flag_of(plan.assume_value(), "possible") ? kDone : kRefused;
}

// Field 22 of /proc/PID/stat; 0 if there is no such process.
std::uint64_t start_ticks_of(int pid) {
  constexpr int kField = 22;
  auto stat = read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  const std::size_t name_end = stat ? stat.assume_value().rfind(')') : std::string::npos;
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat.assume_value().substr(name_end + 1));
  std::string field;
  for (int number = 3; number < kField; ++number) fields >> field;
  std::uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

Result<std::chrono::nanoseconds> duration_option(const char* option, const std::string& text) {
  auto value = tools::parse_duration_ns(text);
  if (!value)
    return Error(ErrorCode::kInvalidArgument, std::string(option) + ": " + value.assume_error().message());
  return std::chrono::nanoseconds(value.assume_value());
}

}  // namespace

int run_job(Context& context, const RunOptions& options) {
  if (options.command.empty()) {
    return report(context, Error(ErrorCode::kInvalidArgument,
                                 "run: name the program after --, like `gpumigrate run -- ./train`"));
  }
  auto body = request_of(options);
  if (!body) return report(context, body.assume_error());
  if (options.dry_run) return print_run_plan(context, body.assume_value());
  if (!options.detach) context.coordinator.http().catch_interrupts();
  auto job = context.coordinator.post("/v1/jobs", body.assume_value());
  if (!job) {
    const int code = exit_code_of(job.assume_error());
    const bool plain = options.detach || code == kRefused || code == kUsage || is_program_status(code);
    return report(context, job.assume_error(), plain ? code : kRunFailed);
  }
  const std::string id = text_of(job.assume_value(), "id");
  if (options.detach) return print_job(context, job.assume_value());
  context.note("job " + id + " (" + text_of(job.assume_value(), "name") + ") runs at " +
               text_of(job.assume_value(), "node") + ":" + text_of(job.assume_value(), "gpu"));
  auto code = attend(context, id);
  if (code) return code.assume_value();
  return report(context, code.assume_error(), kRunFailed);
}

int adopt_process(Context& context, const AdoptOptions& options) {
  Json body = {{"pid", options.pid}};
  if (!options.name.empty()) body["name"] = options.name;
  if (!options.node.empty()) {
    body["node"] = options.node;
  } else {
    // The process of this machine that has the id now, and no other.
    const std::uint64_t ticks = start_ticks_of(options.pid);
    if (ticks == 0)
      return report(context, Error(ErrorCode::kRefused, "There is no process " + std::to_string(options.pid) +
                                                            " on this machine; --node says where else"));
    auto boot = read_file("/proc/sys/kernel/random/boot_id", 64);
    if (!boot) return report(context, boot.assume_error());
    std::string machine = std::move(boot).assume_value();
    machine.resize(machine.find_last_not_of('\n') + 1);
    body["machine"] = machine;
    body["start_ticks"] = ticks;
  }
  auto job = context.coordinator.post("/v1/adopt", body);
  return job ? print_job(context, job.assume_value()) : report(context, job.assume_error());
}

int list_jobs(Context& context) {
  auto jobs = context.coordinator.get_all("/v1/jobs", "jobs");
  if (!jobs) return report(context, jobs.assume_error());
  if (context.json) {
    context.print(jobs.assume_value());
  } else {
    context.out << view_jobs(jobs.assume_value()) << std::flush;
  }
  return kDone;
}

int describe_job(Context& context, const std::string& name) {
  auto job = context.coordinator.get(job_path(name));
  if (!job) return report(context, job.assume_error());
  if (context.json) {
    context.print(job.assume_value());
  } else {
    context.out << view_job(job.assume_value()) << std::flush;
  }
  return kDone;
}

int show_logs(Context& context, const std::string& job, bool follow) {
  LogStream stream(context, job);
  if (follow) {
    // Refused at once if there is no such job; only what happens later is sat out.
    auto first = stream.next(std::chrono::milliseconds(0));
    if (!first) return report(context, first.assume_error());
    if (!first.assume_value()) return kDone;
    auto done = stream.follow([]() -> Result<void> { return ok(); });
    return done ? kDone : report(context, done.assume_error());
  }
  do {
    auto more = stream.next(std::chrono::milliseconds(0));
    if (!more) return report(context, more.assume_error());
  } while (stream.copied());
  return kDone;
}

int stop_job(Context& context, const std::string& name, const std::string& grace) {
  Json body = Json::object();
  if (!grace.empty()) {
    auto time = duration_option("--grace", grace);
    if (!time) return report(context, time.assume_error());
    body["grace_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(time.assume_value()).count();
  }
  auto job = context.coordinator.post(job_path(name) + "/stop", body);
  if (!job) return report(context, job.assume_error());
  auto ended = EndFollower(context, text_of(job.assume_value(), "id")).follow(kNever, true);
  if (!ended) return report(context, ended.assume_error());
  return print_job(context, ended.assume_value());
}

int wait_for_job(Context& context, const std::string& name, const std::string& timeout) {
  Clock::time_point deadline = kNever;
  if (!timeout.empty()) {
    auto time = duration_option("--timeout", timeout);
    if (!time) return report(context, time.assume_error());
    deadline =
        Clock::now() + std::min<std::chrono::nanoseconds>(time.assume_value(), std::chrono::hours(10'000));
  }
  auto job = EndFollower(context, name).follow(deadline, false);
  if (!job) return report(context, job.assume_error());
  print_job(context, job.assume_value());
  return job_exit_code(context, job.assume_value());
}

}  // namespace ckpt::cli
