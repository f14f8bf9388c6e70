// SPDX-License-Identifier: Apache-2.0
// protect, unprotect, snapshot, images, suspend, resume, restore.
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
  std::string job;  // or image
  std::string every;
  std::string to;
  std::uint32_t keep = 0;
  bool force = false;
  bool accept_loss = false;
  bool dry_run = false;
  bool detach = false;
  std::string reason;
  std::string remove;   // `images rm`
  std::string timeout;  // of the waiting, not of what is waited for
};
using Shared = std::shared_ptr<ImageOptions>;

std::string job_path(const std::string& job) {
  return "/v1/jobs/" + path_part(job);
}

// A folder is meant from here; a word without '/' is a node.
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

// Until the task is over. Ctrl-C leaves it: what has begun goes on by itself.
Result<Json> follow_task(Context& context, Wait& wait, const Json& begun) {
  const auto first = record::from_answer<api::ImageTask>(begun);
  const std::string what = first.verb + " of " + first.job_name;
  const std::string look = "`gpumigrate describe " + first.job_name + "` shows the job";
  const Error not_known(ErrorCode::kTimedOut, "How " + what + " ends is not known; " + look);
  bool away = false;
  Clock::time_point since;
  Json task = begun;
  for (api::ImageTask now = first; now.open;) {
    wait.now_for(what + " (" + now.state + ")");
    if (wait.end()) return Error(ErrorCode::kTimedOut, "Left alone: " + what + " goes on; " + look);
    auto answer = context.coordinator.get("/v1/tasks/" + path_part(first.id) +
                                          "?timeout_ms=" + std::to_string(wait.next_call().count()));
    if (answer) {
      task = *std::move(answer);
      now = record::from_answer<api::ImageTask>(task);
      away = false;
      continue;
    }
    const Error& error = answer.error();
    if (error.code() == ErrorCode::kAborted) continue;           // the loop sees the interrupt
    if (error.code() == ErrorCode::kNotFound) return not_known;  // the coordinator was started again
    if (!is_contact_lost(error)) return error;
    if (!away) {
      context.note(error.message() + "; what has begun does not depend on it, asking again");
      away = true;
      since = Clock::now();
    }
    if (Clock::now() - since >= context.patience) return not_known;
    context.coordinator.http().pause(HttpClient::kRedialInterval);
  }
  return task;
}

std::string restored_text(const std::string& job, const api::Restored& restored) {
  std::string out = job + " goes on at " + restored.at + " from " + restored.image + " as incarnation " +
                    std::to_string(restored.incarnation);
  out +=
      restored.lost_ms > 0 ? ", " + span_text(restored.lost_ms) + " of work are lost" : ", nothing is lost";
  if (restored.note) out += " (" + *restored.note + ")";
  if (restored.suspect)
    out += "; its image is suspect, since it was taken after a fault of its GPU: " + *restored.suspect;
  return out;
}

std::string report_text(const api::SnapshotReport& report) {
  const double pause_ms = report.pause_ms.value_or(0);
  std::string out = size_text(report.written_bytes) + " new of " + size_text(report.state_bytes) +
                    ", pause " + (pause_ms > 0 ? format_milliseconds(pause_ms) : "-");
  if (report.waited_bytes > 0)
    out += " (it waited for " + size_text(report.waited_bytes) + " that staging could not hold)";
  return out;
}

std::string outcome_of(const api::ImageTask& task) {
  const std::string job = task.job_name + " (" + task.job + ")";
  if (task.error) return task.verb + " of " + job + " failed: " + *task.error;
  if (task.restored) return restored_text(job, *task.restored);
  // Nothing was taken: it rests already.
  if (task.verb == "suspend" && !task.open && !task.report)
    return job + " is parked already; it stays so until `gpumigrate resume " + task.job_name + "`";
  // A job of several ranks has one of each.
  const std::size_t images = task.images.size();
  const std::string what = images > 1 ? std::to_string(images) + " images" : task.image.value_or("-");
  const std::string taken = images > 1 ? what : "image " + what;
  const std::string out = task.verb == "snapshot" ? taken + " of " + job : job + " rests in " + what;
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

// Orders something that takes its time, and follows it.
int order(Context& context, const std::string& verb, const std::string& job, const Json& body,
          const ImageOptions& options) {
  const WaitSubject subject{verb + " of " + job,
                            "`gpumigrate describe " + job + "` shows whether it goes on"};
  auto wait = Wait::begin(context, subject, options.timeout);
  if (!wait) return report(context, wait.error());
  auto begun = context.coordinator.post(job_path(job) + "/" + verb, body, 1, std::chrono::minutes(15));
  if (!begun) {
    const int code = report(context, begun.error());
    if (code == kUnknown) context.note("`gpumigrate jobs` and `gpumigrate images` say whether it has begun");
    return code;
  }
  if (options.detach) {
    const auto task = record::from_answer<api::ImageTask>(*begun);
    if (context.json)
      context.print(*begun);
    else
      context.note(task.verb + " of " + task.job_name + " has begun");
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
    context.out << printable(done.job) << (dry_run ? " would be" : " is") << " protected every "
                << span_text(done.every_ms) << ", keeping " << done.keep << " images\n"
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
                           "`gpumigrate describe " + options.job + "` shows whether it did"},
                          options.timeout, WaitKind::kAnswer);
  if (!wait) return report(context, wait.error());
  // A dry run comes first: its note on the cost is shown before the protection begins.
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
                           "`gpumigrate describe " + options.job + "` shows whether it did"},
                          options.timeout, WaitKind::kAnswer);
  if (!wait) return report(context, wait.error());
  auto answer = context.coordinator.post(job_path(options.job) + "/unprotect", Json::object(), 1);
  if (!answer) return report_wait(context, **wait, answer.error());
  (*wait)->clear();
  if (context.json)
    context.print(*answer);
  else
    context.out << "job " << printable(record::from_answer<api::Unprotected>(*answer).job)
                << " is not protected any more; its images stay\n"
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
    std::string out = plan.job_name.value_or("-") + " (" + plan.job + ") would go on at " + plan.to +
                      " from " + plan.image + ", ";
    out += plan.lost_ms > 0 ? span_text(plan.lost_ms) + " of work would be lost" : "nothing would be lost";
    if (plan.runs) out += "; it runs, and would be ended";
    context.out << printable(out) << "\n" << std::flush;
    if (!plan.possible) context.note("refused as it stands: " + plan.reason.value_or("-"));
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
  auto wait = Wait::begin(
      context, {"image " + options.remove + " to be removed", "`gpumigrate images` shows whether it was"},
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
  command.add_option("--timeout", o->timeout, "Wait no longer than this, like 10m; what has begun goes on")
      .called("TIME");
}

void add_protection(CommandTree& tree, const Shared& o) {
  Command& app = tree.app();
  Command on = tree.add(app, "protect", "Take an image of a job again and again",
                        [o](Context& c) { return protect(c, *o); });
  on.add_example("gpumigrate protect train --every 10m --to node-b", "Take images again and again");
  on.add_option("job", o->job, "Name or id").required();
  on.add_option("--every", o->every, "Like 30s; of a transparent job at least 5m").called("TIME").required();
  on.add_option("--to", o->to,
                "A folder that several nodes have (it has a '/'), or a node; otherwise the job's own node")
      .called("NODE-OR-FOLDER");
  on.add_option("--keep", o->keep, "Images that stay (2)").in_range(1, 1000);
  on.add_flag("--force", o->force, "A transparent job more often than every 5 minutes");
  on.add_flag("--dry-run", o->dry_run, "Say what it would cost; change nothing");
  add_wait_limit(on, o->timeout, "it may still begin");
  Command off =
      tree.add(app, "unprotect", "Take no more images of a job by itself; those that there are stay",
               [o](Context& c) { return unprotect(c, *o); });
  off.add_option("job", o->job, "Name or id").required();
  add_wait_limit(off, o->timeout, "it may still end");
}

void add_images(CommandTree& tree, const Shared& o) {
  Command& app = tree.app();
  Command take = tree.add(app, "snapshot", "Take an image of a job; it goes on",
                          [o](Context& c) { return snapshot(c, "snapshot", *o); });
  take.add_example("gpumigrate snapshot train", "Take an image; the job goes on");
  take.add_option("job", o->job, "Name or id").required();
  take.add_option("--to", o->to, "A folder that several nodes have (it has a '/'), or a node, into its vault")
      .called("NODE-OR-FOLDER");
  take.add_flag("--detach", o->detach, "Do not wait");
  add_timeout(take, o);
  Command images =
      add_list(tree, "images", "List images", images_list,
               {.node = "Only those that this node wrote", .name = "Only of these jobs, like \"train*\""});
  Command rm = tree.add(images, "rm", "Remove an image", [o](Context& c) { return remove_image(c, *o); });
  rm.add_example("gpumigrate images rm j3.v12@node-a", "Remove an image");
  rm.add_example("gpumigrate images rm train#12", "Remove version 12 of a job's images");
  rm.add_option("image", o->remove, "Like j3.v12@node-a; of a job NAME#12, or NAME: its newest").required();
  rm.add_flag("--force", o->force, "Also the one that a parked job rests in");
  add_wait_limit(rm, o->timeout, "it may still be removed");
}

void add_rest(CommandTree& tree, const Shared& o) {
  Command& app = tree.app();
  Command suspend = tree.add(app, "suspend", "Put a job into an image and free its GPU",
                             [o](Context& c) { return snapshot(c, "suspend", *o); });
  suspend.add_example("gpumigrate suspend train", "Put a job into an image and free its GPU");
  suspend.add_option("job", o->job, "Name or id").required();
  suspend
      .add_option("--to", o->to, "A folder that several nodes have (it has a '/'), or a node, into its vault")
      .called("NODE-OR-FOLDER");
  suspend.add_flag("--detach", o->detach, "Do not wait");
  add_timeout(suspend, o);
  Command resume =
      tree.add(app, "resume", "Let a parked job go on", [o](Context& c) { return restore(c, "resume", *o); });
  resume.add_example("gpumigrate resume train", "Let it go on");
  resume.add_option("job", o->job, "Name or id").required();
  resume.add_option("--to", o->to, "NODE, NODE:GPU or auto (auto); of a job of several ranks NODE,NODE")
      .called("PLACE");
  resume.add_flag("--detach", o->detach, "Do not wait");
  add_timeout(resume, o);
  Command back = tree.add(app, "restore", "Let a job go on from an image; what runs of it is ended first",
                          [o](Context& c) { return restore(c, "restore", *o); });
  back.add_option("job", o->job, "Name or id of a job, or an image like j3.v12@node-a or NAME#12")
      .called("JOB-OR-IMAGE")
      .required();
  back.add_option("--to", o->to, "NODE, NODE:GPU or auto (auto); of a job of several ranks NODE,NODE")
      .called("PLACE");
  back.add_option("--reason", o->reason, "For the records");
  back.add_flag("--force", o->force,
                "Your word that an instance on a node that is not connected is dead for good; should it "
                "turn up, it is ended");
  back.add_flag("--accept-loss", o->accept_loss,
                "Also if the job runs, or went further than the image: that work is lost");
  back.add_flag("--dry-run", o->dry_run, "Show how much work would be lost; change nothing");
  back.add_flag("--detach", o->detach, "Do not wait");
  back.add_example("gpumigrate restore train --to node-b", "Let a job go on from its newest image");
  add_timeout(back, o);
  back.set_footer(
      "Exit codes: 0 nothing was lost; 3 work since the image is lost (it prints how much); 1 it did not "
      "start "
      "and rests in its image; 5 refused, nothing touched: --accept-loss is needed where work would be lost; "
      "6 outcome not known.");
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
