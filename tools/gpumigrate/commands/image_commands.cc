// SPDX-License-Identifier: Apache-2.0
// The commands protect, unprotect, snapshot, images, suspend, resume and restore.
#include <filesystem>
#include <memory>

#include "libckpt/api/image.h"
#include "libckpt/record/document.h"
#include "tools/common/units.h"
#include "tools/gpumigrate/client/image_names.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/client/wait.h"
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"
#include "tools/gpumigrate/commands/list_options.h"

namespace ckpt::cli {
namespace {

using Clock = std::chrono::steady_clock;
using tools::format_bytes;
using tools::format_milliseconds;

struct ImageOptions {
  std::string job;  // a job or an image
  std::string every;
  std::string to;
  std::uint32_t keep = 0;
  bool force = false;
  bool accept_loss = false;
  bool dry_run = false;
  bool detach = false;
  std::string reason;
  std::string remove;   // the image to remove, for `images rm`
  std::string timeout;  // the value of --timeout, which limits the wait, not the operation
};
using Shared = std::shared_ptr<ImageOptions>;

std::string job_path(const std::string& job) {
  return "/v1/jobs/" + path_part(job);
}

// Makes a folder's path absolute. A word without '/' is a node.
std::string destination(const std::string& to) {
  return to.find('/') == std::string::npos ? to : std::filesystem::absolute(to).lexically_normal().string();
}

std::string size_text(std::uint64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

std::string span_text(std::int64_t milliseconds) {
  return format_milliseconds(static_cast<double>(milliseconds));
}

bool is_contact_lost(const Error& error) {
  return error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kTimedOut;
}

// Waits until the task has ended. Ctrl-C ends only the wait, and the task continues.
Result<Json> follow_task(Context& context, Wait& wait, const Json& begun) {
  const auto first = record::from_answer<api::ImageTask>(begun);
  const std::string what = first.verb + " of " + first.job_name;
  const std::string look = "`gpumigrate describe " + first.job_name + "` shows the job";
  const Error not_known(ErrorCode::kTimedOut, "The outcome of the " + what + " is unknown; " + look);
  bool away = false;
  Clock::time_point since;
  Json task = begun;
  for (api::ImageTask now = first; now.open;) {
    wait.now_for(what + " (" + now.state + ")");
    if (wait.end())
      return Error(ErrorCode::kTimedOut, "Stopped waiting: the " + what + " continues; " + look);
    auto answer = context.coordinator.get("/v1/tasks/" + path_part(first.id) +
                                          "?timeout_ms=" + std::to_string(wait.next_call().count()));
    if (answer) {
      task = *std::move(answer);
      now = record::from_answer<api::ImageTask>(task);
      away = false;
      continue;
    }
    const Error& error = answer.error();
    if (error.code() == ErrorCode::kAborted) continue;           // the loop handles the interrupt
    if (error.code() == ErrorCode::kNotFound) return not_known;  // the coordinator has restarted
    if (!is_contact_lost(error)) return error;
    if (!away) {
      context.note(error.message() + "; retrying. The " + what + " is not affected");
      away = true;
      since = Clock::now();
    }
    if (Clock::now() - since >= context.patience) return not_known;
    context.coordinator.http().pause(HttpClient::kRedialInterval);
  }
  return task;
}

std::string restored_text(const std::string& job, const api::Restored& restored) {
  std::string out = job + " continues at " + restored.at + " from " + restored.image + " as incarnation " +
                    std::to_string(restored.incarnation);
  out += restored.lost_ms > 0 ? ", " + span_text(restored.lost_ms) + " of work is lost" : ", no work is lost";
  if (restored.note) out += " (" + *restored.note + ")";
  if (restored.suspect)
    out += "; its image is suspect, because it was taken after a GPU fault: " + *restored.suspect;
  return out;
}

std::string report_text(const api::SnapshotReport& report) {
  const double pause_ms = report.pause_ms.value_or(0);
  std::string out = size_text(report.written_bytes) + " new of " + size_text(report.state_bytes) +
                    ", pause " + (pause_ms > 0 ? format_milliseconds(pause_ms) : "-");
  if (report.waited_bytes > 0)
    out +=
        " (the job waited for " + size_text(report.waited_bytes) + " that did not fit into staging memory)";
  return out;
}

std::string outcome_of(const api::ImageTask& task) {
  const std::string job = task.job_name + " (" + task.job + ")";
  if (task.error) return task.verb + " of " + job + " failed: " + *task.error;
  if (task.restored) return restored_text(job, *task.restored);
  // No image was taken, because the job was already parked.
  if (task.verb == "suspend" && !task.open && !task.report)
    return job + " is parked already; `gpumigrate resume " + task.job_name + "` continues it";
  // A job of several ranks has one image for each rank.
  const std::size_t images = task.images.size();
  const std::string what = images > 1 ? std::to_string(images) + " images" : task.image.value_or("-");
  const std::string images_text = images > 1 ? what : "image " + what;
  const std::string out =
      task.verb == "snapshot" ? images_text + " of " + job : job + " is parked in " + what;
  return task.report ? out + ": " + report_text(*task.report) : out;
}

int print_task(Context& context, const Json& answer) {
  const auto task = record::from_answer<api::ImageTask>(answer);
  if (context.json)
    context.print(answer);
  else if (task.error)
    context.note(outcome_of(task));
  else
    context.out << printable(outcome_of(task)) << "\n" << std::flush;
  return task.open ? kDone : task.exit_code.value_or(kUnknown);
}

// Begins a task and follows it to its end.
int order(Context& context, const std::string& verb, const std::string& job, const Json& body,
          const ImageOptions& options) {
  const WaitSubject subject{verb + " of " + job,
                            "`gpumigrate describe " + job + "` shows whether it continues"};
  auto wait = Wait::begin(context, subject, options.timeout);
  if (!wait) return report(context, wait.error());
  auto begun = context.coordinator.post(job_path(job) + "/" + verb, body, 1, std::chrono::minutes(15));
  if (!begun) {
    const int code = report(context, begun.error());
    if (code == kUnknown)
      context.note("`gpumigrate jobs` and `gpumigrate images` show whether the " + verb + " has begun");
    return code;
  }
  if (options.detach) {
    const auto task = record::from_answer<api::ImageTask>(*begun);
    if (context.json)
      context.print(*begun);
    else
      context.note("The " + task.verb + " of " + task.job_name + " has begun");
    return kDone;
  }
  auto task = follow_task(context, **wait, *begun);
  (*wait)->clear();
  if (!task) return report(context, task.error());
  return print_task(context, *task);
}

int print_protection(Context& context, const Json& answer, bool dry_run) {
  if (context.json) {
    context.print(answer);
  } else {
    const auto done = record::from_answer<api::Protected>(answer);
    context.out << "job " << printable(done.job) << (dry_run ? " would get" : " gets") << " an image every "
                << span_text(done.every_ms) << "; the newest " << done.keep << " are kept\n"
                << std::flush;
  }
  return kDone;
}

int protect(Context& context, const ImageOptions& options) {
  auto every = tools::parse_duration_ns(options.every);
  if (!every)
    return report(context, Error(ErrorCode::kInvalidArgument, "--every: " + every.error().message()));
  Json body = {{"every_ms", *every / 1'000'000}, {"force", options.force}};
  if (!options.to.empty()) body["to"] = destination(options.to);
  if (options.keep != 0) body["keep"] = options.keep;
  auto wait = Wait::begin(context,
                          {"the coordinator to protect job " + options.job,
                           "`gpumigrate describe " + options.job + "` shows whether the job is protected"},
                          options.timeout, WaitKind::kAnswer);
  if (!wait) return report(context, wait.error());
  // A dry run comes first, so that the user sees its note on the pause before the protection begins.
  body["dry_run"] = true;
  auto plan = context.coordinator.post(job_path(options.job) + "/protect", body, 1);
  if (!plan) return report_wait(context, **wait, plan.error());
  (*wait)->clear();
  const auto planned = record::from_answer<api::Protected>(*plan);
  if (planned.note) context.note(*planned.note);
  Json done = *std::move(plan);
  if (!options.dry_run) {
    body["dry_run"] = false;
    auto answer = context.coordinator.post(job_path(options.job) + "/protect", body, 1);
    if (!answer) return report_wait(context, **wait, answer.error());
    done = *std::move(answer);
  }
  (*wait)->clear();
  return print_protection(context, done, options.dry_run);
}

int unprotect(Context& context, const ImageOptions& options) {
  auto wait = Wait::begin(context,
                          {"the coordinator to end the protection of job " + options.job,
                           "`gpumigrate describe " + options.job + "` shows whether the job is protected"},
                          options.timeout, WaitKind::kAnswer);
  if (!wait) return report(context, wait.error());
  auto answer = context.coordinator.post(job_path(options.job) + "/unprotect", Json::object(), 1);
  if (!answer) return report_wait(context, **wait, answer.error());
  (*wait)->clear();
  if (context.json)
    context.print(*answer);
  else
    context.out << "job " << printable(record::from_answer<api::Unprotected>(*answer).job)
                << " is no longer protected; its images are kept\n"
                << std::flush;
  return kDone;
}

int snapshot(Context& context, const char* verb, const ImageOptions& options) {
  Json body = Json::object();
  if (!options.to.empty()) body["to"] = destination(options.to);
  return order(context, verb, options.job, body, options);
}

int print_restore_plan(Context& context, const Json& answer) {
  const auto plan = record::from_answer<api::RestorePlan>(answer);
  if (context.json) {
    context.print(answer);
  } else {
    std::string out = plan.job_name.value_or("-") + " (" + plan.job + ") would continue at " + plan.to +
                      " from " + plan.image + ", ";
    out += plan.lost_ms > 0 ? span_text(plan.lost_ms) + " of work would be lost" : "no work would be lost";
    if (plan.runs) out += "; its running instance would be stopped";
    context.out << printable(out) << "\n" << std::flush;
    if (!plan.possible) context.note("The restore would be refused: " + plan.reason.value_or("-"));
  }
  return plan.possible ? kDone : kRefused;
}

int dry_restore(Context& context, const std::string& path, Json body) {
  body["dry_run"] = true;
  auto plan = context.coordinator.post(path, body, 2, std::chrono::minutes(3));
  return plan ? print_restore_plan(context, *plan) : report(context, plan.error());
}

int restore(Context& context, const char* verb, const ImageOptions& options) {
  Json body = Json::object();
  std::string job = options.job;
  if (is_image(job)) {
    auto image = find_image(context.coordinator, job);
    if (!image) return report(context, image.error());
    body["image"] = *image;
    job = image->substr(0, image->find('.'));
  }
  if (!options.to.empty()) body["to"] = options.to;
  if (!options.reason.empty()) body["reason"] = options.reason;
  if (options.force) body["force"] = true;
  if (options.accept_loss) body["accept_loss"] = true;
  if (options.dry_run) return dry_restore(context, job_path(job) + "/" + verb, std::move(body));
  return order(context, verb, job, body, options);
}

int remove_image(Context& context, const ImageOptions& options) {
  auto wait = Wait::begin(context,
                          {"image " + options.remove + " to be removed",
                           "`gpumigrate images` shows whether the image was removed"},
                          options.timeout, WaitKind::kAnswer);
  if (!wait) return report(context, wait.error());
  auto image = find_image(context.coordinator, options.remove);
  if (!image) return report_wait(context, **wait, image.error());
  auto answer = context.coordinator.post("/v1/images/" + path_part(*image) + "/remove",
                                         {{"force", options.force}}, 1, std::chrono::minutes(3));
  if (!answer) return report_wait(context, **wait, answer.error());
  (*wait)->clear();
  if (context.json)
    context.print(*answer);
  else
    context.out << "image " << printable(*image) << " is removed\n" << std::flush;
  return kDone;
}

void add_timeout(Command command, const Shared& o) {
  command.add_option("--timeout", o->timeout, "Wait at most this long, like 10m; the operation continues")
      .called("TIME");
}

void add_protection(CommandTree& tree, const Shared& o) {
  Command& app = tree.app();
  Command on = tree.add(app, "protect", "Take images of a job at an interval",
                        [o](Context& c) { return protect(c, *o); });
  on.add_example("gpumigrate protect train --every 10m --to node-b",
                 "Take an image every 10 minutes and store it on node-b");
  on.add_option("job", o->job, "Name or id of the job").required();
  on.add_option("--every", o->every, "The interval, like 30s; at least 5m for a transparent job")
      .called("TIME")
      .required();
  on.add_option("--to", o->to,
                "Place for the images: a folder that several nodes share (it contains a '/'), or a node "
                "(default: the job's own node)")
      .called("NODE-OR-FOLDER");
  on.add_option("--keep", o->keep, "Number of images to keep (2)").in_range(1, 1000);
  on.add_flag("--force", o->force, "Allow an interval below 5 minutes for a transparent job");
  on.add_flag("--dry-run", o->dry_run, "Show what the protection would cost; change nothing");
  add_wait_limit(on, o->timeout, "the protection may still begin");
  Command off =
      tree.add(app, "unprotect", "Stop taking images of a job at an interval; existing images are kept",
               [o](Context& c) { return unprotect(c, *o); });
  off.add_option("job", o->job, "Name or id of the job").required();
  add_wait_limit(off, o->timeout, "the protection may still end");
}

void add_images(CommandTree& tree, const Shared& o) {
  Command& app = tree.app();
  Command take = tree.add(app, "snapshot", "Take an image of a job, which continues to run",
                          [o](Context& c) { return snapshot(c, "snapshot", *o); });
  take.add_example("gpumigrate snapshot train", "Take an image while the job runs");
  take.add_option("job", o->job, "Name or id of the job").required();
  take.add_option("--to", o->to,
                  "Place for the image: a folder that several nodes share (it contains a '/'), or a node")
      .called("NODE-OR-FOLDER");
  take.add_flag("--detach", o->detach, "Do not wait for the end");
  add_timeout(take, o);
  Command images = add_list(tree, "images", "List images", images_list,
                            {.node = "Only images that this node wrote",
                             .name = "Only images of jobs with these names, like \"train*\""});
  Command rm = tree.add(images, "rm", "Remove an image", [o](Context& c) { return remove_image(c, *o); });
  rm.add_example("gpumigrate images rm j3.v12@node-a", "Remove an image");
  rm.add_example("gpumigrate images rm train#12", "Remove version 12 of a job's images");
  rm.add_option("image", o->remove,
                "Id like j3.v12@node-a, or NAME#12 for version 12 of a job, or NAME for its newest image")
      .required();
  rm.add_flag("--force", o->force, "Remove the image even if a parked job needs it to continue");
  add_wait_limit(rm, o->timeout, "the image may still be removed");
}

void add_rest(CommandTree& tree, const Shared& o) {
  Command& app = tree.app();
  Command suspend = tree.add(app, "suspend", "Park a job in an image and free its GPU",
                             [o](Context& c) { return snapshot(c, "suspend", *o); });
  suspend.add_example("gpumigrate suspend train", "Park a job in an image and free its GPU");
  suspend.add_option("job", o->job, "Name or id of the job").required();
  suspend
      .add_option("--to", o->to,
                  "Place for the image: a folder that several nodes share (it contains a '/'), or a node")
      .called("NODE-OR-FOLDER");
  suspend.add_flag("--detach", o->detach, "Do not wait for the end");
  add_timeout(suspend, o);
  Command resume =
      tree.add(app, "resume", "Continue a parked job", [o](Context& c) { return restore(c, "resume", *o); });
  resume.add_example("gpumigrate resume train", "Continue a parked job");
  resume.add_option("job", o->job, "Name or id of the job").required();
  resume.add_option("--to", o->to, "NODE, NODE:GPU or auto (auto); NODE,NODE for a job of several ranks")
      .called("PLACE");
  resume.add_flag("--detach", o->detach, "Do not wait for the end");
  add_timeout(resume, o);
  Command back = tree.add(app, "restore", "Continue a job from an image; a running instance is stopped first",
                          [o](Context& c) { return restore(c, "restore", *o); });
  back.add_option("job", o->job,
                  "Name or id of a job (its newest image), or an image like j3.v12@node-a or NAME#12")
      .called("JOB-OR-IMAGE")
      .required();
  back.add_option("--to", o->to, "NODE, NODE:GPU or auto (auto); NODE,NODE for a job of several ranks")
      .called("PLACE");
  back.add_option("--reason", o->reason, "The reason, for the records");
  back.add_flag("--force", o->force,
                "Confirm that an instance on an unreachable node has ended permanently; if the instance "
                "appears again, it is stopped");
  back.add_flag(
      "--accept-loss", o->accept_loss,
      "Restore even if the job runs, or has run since the image was taken: the work since then is lost");
  back.add_flag("--dry-run", o->dry_run, "Show how much work would be lost; change nothing");
  back.add_flag("--detach", o->detach, "Do not wait for the end");
  back.add_example("gpumigrate restore train --to node-b", "Continue a job from its newest image on node-b");
  add_timeout(back, o);
  back.set_footer(
      "Exit codes: 0 no work was lost; 1 the job did not start and stays parked in its image; 3 work since "
      "the image is lost (the command prints how much); 5 refused, nothing was changed (--accept-loss is "
      "needed if work would be lost); 6 the outcome is unknown.");
}

}  // namespace

void add_image_commands(CommandTree& tree) {
  const auto options = std::make_shared<ImageOptions>();
  tree.begin_family("Images");
  add_protection(tree, options);
  add_images(tree, options);
  add_rest(tree, options);
}

}  // namespace ckpt::cli
