// SPDX-License-Identifier: Apache-2.0
// The commands for backups and recovery. `backup FILE` requests a copy in the coordinator's folder, checks
// the copy and moves it to FILE. `backup show FILE` and `backup restore FILE` work without a coordinator.
// `cluster recover` and `cluster confirm` control what a coordinator learns from its nodes after its store
// was lost or replaced by an older copy.
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <memory>

#include "libckpt/base/clock.h"
#include "libckpt/record/document.h"
#include "libckpt/store/backup/restore.h"
#include "tools/common/units.h"
#include "tools/gpumigrate/client/cluster_views.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/client/wait.h"
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"

namespace ckpt::cli {
namespace {

constexpr std::chrono::minutes kPatience{10};  // the limit for the coordinator to write its copy

struct BackupOptions {
  std::string file;
  std::string into;
  std::string timeout;
  bool replace = false;
  int (*action)(Context&, const BackupOptions&) = nullptr;
};

// Reports a refusal. A refused backup has changed nothing.
int refuse_backup(Context& context, const Error& error) {
  return report(context, Error(ErrorCode::kRefused, error.to_string()));
}

std::string utc_text(std::int64_t unix_ms, const char* format) {
  const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm parts{};
  char text[64] = "";
  if (::gmtime_r(&seconds, &parts) != nullptr) (void)std::strftime(text, sizeof text, format, &parts);
  return text;
}

Json backup_json(const std::string& file, const backup::Contents& contents) {
  Json parts = Json::object();
  for (std::size_t i = 0; i < backup::kParts.size(); ++i)
    parts[std::string(backup::kParts[i])] = contents.sizes[i];
  return {{"file", file},
          {"cluster", contents.cluster},
          {"made", utc_text(contents.made_ms, "%Y-%m-%dT%H:%M:%SZ")},
          {"made_ms", contents.made_ms},
          {"software", contents.software},
          {"jobs", contents.jobs},
          {"migrations", contents.migrations},
          {"parts", parts}};
}

void print_contents(Context& context, const std::string& file, const backup::Contents& contents) {
  const Json json = backup_json(file, contents);
  if (context.json) return context.print(json);
  context.out << printable("cluster " + contents.cluster + ", made " + text_of(json, "made") +
                           " by gpumigrate " + contents.software + ": " + std::to_string(contents.jobs) +
                           " jobs, " + std::to_string(contents.migrations) + " migrations, " +
                           (contents.has(backup::kParts.size() - 1) ? "with" : "without") +
                           " the key of the certificate authority")
              << "\n";
}

int make_backup(Context& context, const BackupOptions& options) {
  if (options.file.empty())
    return report(context, Error(ErrorCode::kInvalidArgument,
                                 "backup: name the file to write, like `gpumigrate backup cluster.backup`"));
  auto wait = Wait::begin(context,
                          {"the coordinator's copy of its store",
                           "the coordinator may still write its copy, which the next backup replaces"},
                          options.timeout, WaitKind::kAnswer);
  if (!wait) return report(context, wait.error());
  auto made = context.coordinator.get("/v1/backup", kPatience);
  if (!made) return report_wait(context, **wait, made.error());
  (*wait)->clear();
  const std::string copy = record::from_answer<api::Backup>(*made).file;
  auto file = backup::BackupFile::open(copy);
  if (!file.has_value())
    return refuse_backup(
        context, Error(ErrorCode::kRefused,
                       "Cannot read the coordinator's copy; run the command on the coordinator's machine")
                     .caused_by(std::move(file).error()));
  if (auto whole = file->verify(); !whole.has_value()) return refuse_backup(context, whole.error());
  if (auto copied = file->copy_to(options.file); !copied.has_value())
    return refuse_backup(context, copied.error());
  (void)::unlink(copy.c_str());
  print_contents(context, options.file, file->contents());
  return kDone;
}

int show_backup(Context& context, const BackupOptions& options) {
  auto file = backup::BackupFile::open(options.file);
  if (!file.has_value()) return refuse_backup(context, file.error());
  if (auto whole = file->verify(); !whole.has_value()) return refuse_backup(context, whole.error());
  print_contents(context, options.file, file->contents());
  return kDone;
}

int restore_backup(Context& context, const BackupOptions& options) {
  auto file = backup::BackupFile::open(options.file);
  if (!file.has_value()) return refuse_backup(context, file.error());
  std::string folder = context.home() + "/coordinator";
  if (!options.into.empty()) folder = std::filesystem::absolute(options.into).lexically_normal();
  auto restored = backup::restore(*file, folder, options.replace,
                                  "before-restore-" + utc_text(wall_clock_ms(), "%Y%m%d-%H%M%S"));
  if (!restored.has_value()) return refuse_backup(context, restored.error());
  const std::string& aside = restored->aside;
  if (context.json) {
    Json json = backup_json(options.file, file->contents());
    json["folder"] = folder;
    json["aside"] = aside.empty() ? Json(nullptr) : Json(aside);
    context.print(json);
  } else {
    print_contents(context, options.file, file->contents());
    if (!aside.empty()) context.out << printable("The previous store is kept in " + aside) << "\n";
    if (file->contents().has(backup::kParts.size() - 1))
      context.out << printable("The authority is restored to ca.pem and ca.key in " + folder +
                               "; if the authority's own folder is lost, copy both files there and run "
                               "`gpumigrate cluster init`")
                  << "\n";
  }
  context.note(
      "Next: run `gpumigrate local up`, or start the coordinator's service. The coordinator queries the "
      "nodes for changes since the backup.");
  return kDone;
}

struct RecoveryOptions {
  std::string span;
  bool end = false;
  std::string job;
};

Result<Json> recovery_answer(Context& context, const RecoveryOptions& options) {
  if (options.end && !options.span.empty())
    return Error(ErrorCode::kInvalidArgument,
                 "--for and --end cannot be combined: --for accepts reports from nodes, and --end stops "
                 "accepting them");
  if (options.end) return context.coordinator.post("/v1/recovery/close", Json::object());
  if (options.span.empty()) return context.coordinator.get("/v1/recovery");
  auto span = tools::parse_duration_ns(options.span);
  if (!span) return Error(ErrorCode::kInvalidArgument, "--for: " + span.error().message());
  return context.coordinator.post("/v1/recovery/open", {{"for_ms", *span / kNanosPerMs}});
}

int confirm_job(Context& context, const RecoveryOptions& options) {
  auto answer = context.coordinator.post("/v1/jobs/" + path_part(options.job) + "/confirm", Json::object());
  if (!answer) return report(context, answer.error());
  if (context.json)
    context.print(*answer);
  else
    context.out << printable("Job " + options.job +
                             " is confirmed: drains, evacuations and rebalances may move the job")
                << "\n";
  return kDone;
}

int recover(Context& context, const RecoveryOptions& options) {
  auto answer = recovery_answer(context, options);
  if (!answer) return report(context, answer.error());
  if (context.json)
    context.print(*answer);
  else
    context.out << view_recovery(record::from_answer<api::Recovery>(*answer), context.layout()) << std::flush;
  return kDone;
}

}  // namespace

void add_backup_commands(CommandTree& tree) {
  const auto options = std::make_shared<BackupOptions>();
  options->action = make_backup;
  Command backup =
      tree.add(tree.app(), "backup", "Back up the coordinator's state to a file; show or restore a backup",
               [options](Context& c) { return options->action(c, *options); });
  backup.add_example("gpumigrate backup cluster.backup", "Back up the coordinator's state");
  backup.add_option("file", options->file,
                    "The file to write. Keep the file secret: it contains the cluster's tokens");
  add_wait_limit(backup, options->timeout, "the coordinator may still write its copy");
  Command show = backup.add_subcommand("show", "Show the contents of a backup");
  show.on_given([options] { options->action = show_backup; });
  show.add_option("file", options->file, "The backup").required();
  Command restore = backup.add_subcommand(
      "restore", "Restore a backup into the folder of a coordinator that is not running");
  restore.on_given([options] { options->action = restore_backup; });
  restore.add_option("file", options->file, "The backup").required();
  restore
      .add_option("--into", options->into,
                  "The coordinator's folder (default: coordinator in GPUMIGRATE_HOME)")
      .called("FOLDER");
  restore.add_flag("--replace", options->replace,
                   "Replace the store in the folder; the old store is retained");
}

void add_recovery_commands(CommandTree& tree) {
  Command cluster = tree.add_parent("cluster", "Manage the cluster, its certificates and its recovery");
  cluster.require_subcommand();
  const auto options = std::make_shared<RecoveryOptions>();
  Command recovery =
      tree.add(cluster, "recover", "Show or accept jobs that nodes report and the coordinator's store lacks",
               [options](Context& c) { return recover(c, *options); });
  recovery.add_option("--for", options->span, "Accept reports of nodes for this time, like 10m")
      .called("TIME");
  recovery.add_flag("--end", options->end, "Stop accepting reports");
  recovery.add_example("gpumigrate cluster recover --for 10m",
                       "Recover jobs after the store was lost or an older copy was restored");
  recovery.set_footer(
      "An accepted job is known only from its node's report. Users can list, stop and move it. Drains, "
      "evacuations and rebalances do not move it before `gpumigrate cluster confirm JOB`.");
  Command confirmation = tree.add(
      cluster, "confirm", "Confirm a recovered job, so that drains, evacuations and rebalances move it",
      [options](Context& c) { return confirm_job(c, *options); });
  confirmation.add_option("job", options->job, "The job").required();
}

}  // namespace ckpt::cli
