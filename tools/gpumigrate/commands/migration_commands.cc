// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <boost/tokenizer.hpp>
#include <cctype>
#include <cmath>
#include <iterator>
#include <sstream>

#include "libckpt/record/document.h"
#include "tools/common/units.h"
#include "tools/gpumigrate/client/list_views.h"
#include "tools/gpumigrate/client/views.h"
#include "tools/gpumigrate/client/wait.h"
#include "tools/gpumigrate/client/watch.h"
#include "tools/gpumigrate/commands/commands.h"

namespace ckpt::cli {
namespace {

constexpr std::uint64_t kMaxShadowBytes = std::uint64_t{1} << 40;  // the API's limit for the size of the
                                                                   // shadow memory

std::string migration_path(const std::string& id) {
  return "/v1/migrations/" + path_part(id);
}

template <typename T>
Result<T> option_value(const char* option, Result<T> value) {
  if (!value) return Error(ErrorCode::kInvalidArgument, std::string(option) + ": " + value.error().message());
  return value;
}

Result<double> milliseconds_option(const char* option, const std::string& text) {
  CKPT_TRY(nanoseconds, option_value(option, tools::parse_duration_ns(text)));
  return static_cast<double>(nanoseconds) / 1e6;
}

Error usage(const std::string& cause) {
  return {ErrorCode::kInvalidArgument, cause};
}

// Adds the encoding of chunks and the share of the GPU's time for the copy.
Result<void> add_copying(const MigrateOptions& options, Json& body) {
  if (!options.codec.empty()) body["codec"] = options.codec;
  std::uint64_t shadow = 0;
  if (!options.shadow_memory.empty()) {
    CKPT_TRY(value, option_value("--shadow-memory", tools::parse_size(options.shadow_memory)));
    if (value > kMaxShadowBytes)
      return usage("--shadow-memory: " + tools::format_bytes(static_cast<double>(value)) +
                   " is more than the maximum of " +
                   tools::format_bytes(static_cast<double>(kMaxShadowBytes)));
    shadow = value;
    body["shadow_memory_bytes"] = shadow;
  }
  if (options.codec == "difference" && shadow == 0)
    return usage("--codec difference requires --shadow-memory, like 4GiB, which holds the data sent last");
  if (!options.slowdown.empty()) {
    CKPT_TRY(share, option_value("--slowdown", tools::parse_share(options.slowdown)));
    // The API takes steps of 0.1 %. A share of 0 would be a move that never ends.
    const std::int64_t permille = std::llround(share * 1000);
    if (permille == 0)
      return usage("--slowdown: \"" + options.slowdown +
                   "\" is less than 0.1%; omit the option for no limit");
    body["slowdown_percent"] = static_cast<double>(permille) / 10;
  }
  return ok();
}

// Splits a command into words like a shell, with quotes and backslashes. Variables and patterns are not
// expanded.
Result<std::vector<std::string>> words_of(const std::string& command) {
  std::vector<std::string> words;
  try {
    const boost::tokenizer<boost::escaped_list_separator<char>> pieces(
        command, boost::escaped_list_separator<char>("\\", " \t", "'\""));
    std::copy_if(pieces.begin(), pieces.end(), std::back_inserter(words),
                 [](const std::string& word) { return !word.empty(); });
  } catch (const boost::escaped_list_error&) {
    return usage("--exec: a backslash must be followed by a quote, a space or a backslash: " + command);
  }
  if (words.empty()) return usage("--exec: the command is empty");
  return words;
}

// Adds the command of the program that continues to the request.
Result<void> add_program(const MigrateOptions& options, Json& body) {
  if (options.exec.empty()) {
    if (!options.allow.empty()) return usage("--allow requires --exec");
    return ok();
  }
  CKPT_TRY(words, words_of(options.exec));
  body["exec"] = words;
  std::istringstream allowed(options.allow);
  for (std::string word; std::getline(allowed, word, ',');) body["allow"].push_back(word);
  return ok();
}

// Adds the ranks that move to the request. `options.ranks` has comma-separated numbers.
Result<void> add_ranks(const MigrateOptions& options, Json& body) {
  if (options.ranks.empty()) return ok();
  std::istringstream given(options.ranks);
  for (std::string word; std::getline(given, word, ',');) {
    const bool is_number =
        !word.empty() && word.size() <= 4 &&
        std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    if (!is_number) return usage("--rank: \"" + options.ranks + "\" is not a list of ranks like 3 or 2,3");
    body["ranks"].push_back(std::stoul(word));
  }
  return ok();
}

Result<Json> request_of(const MigrateOptions& options) {
  Json body = {{"to", options.to}, {"strategy", options.stop_copy ? "stop-copy" : "live"}};
  if (!options.max_downtime.empty()) {
    CKPT_TRY(value, milliseconds_option("--max-downtime", options.max_downtime));
    body["max_downtime_ms"] = value;
  }
  if (!options.if_not_converged.empty()) body["if_not_converged"] = options.if_not_converged;
  if (!options.communicators.empty()) body["communicators"] = options.communicators;
  if (!options.connections.empty()) body["connections"] = options.connections;
  if (!options.bandwidth.empty()) {
    CKPT_TRY(value, option_value("--bandwidth", tools::parse_rate(options.bandwidth)));
    body["bandwidth"] = value;
  }
  if (!options.network.empty()) body["network"] = options.network;
  if (options.max_rounds != 0) body["max_rounds"] = options.max_rounds;
  if (!options.timeout.empty()) {
    CKPT_TRY(value, milliseconds_option("--timeout", options.timeout));
    body["timeout_ms"] = static_cast<std::int64_t>(std::ceil(value));
  }
  CKPT_TRYV(add_ranks(options, body));
  CKPT_TRYV(add_copying(options, body));
  CKPT_TRYV(add_program(options, body));
  if (!options.reason.empty()) body["reason"] = options.reason;
  if (options.dry_run) body["dry_run"] = true;
  return body;
}

// Returns the id of the migration that the user names. A job's name or id denotes its open migration.
Result<std::string> migration_of(Context& context, const std::string& given) {
  auto known =
      has_id_form(given, 'm') ? context.coordinator.get(migration_path(given)) : Result<Json>(Json());
  if (known && known->is_object()) return given;
  auto named = context.coordinator.get("/v1/jobs/" + path_part(given));
  if (!named) return known ? std::move(named).error() : std::move(known).error();
  const auto detail = record::from_answer<api::JobDetail>(*named);
  if (detail.open_migration) return detail.open_migration->id;
  std::string cause = "Job " + detail.job.name + " (" + detail.job.id + ") is not being moved";
  if (!detail.migrations.empty()) cause += "; its last migration was " + detail.migrations.back();
  return Error(ErrorCode::kRefused, cause);
}

int print_migration(Context& context, const Json& migration) {
  if (context.json) {
    context.print(migration);
  } else {
    context.out << view_migrations({record::from_answer<api::Migration>(migration)}, context.layout())
                << std::flush;
  }
  return kDone;
}

// Requests the move. After Ctrl-C before the answer, a move without --detach is aborted once its id is known.
Result<Json> order_move(Context& context, const MigrateOptions& options, const Json& body) {
  Wait wait(context, {"the coordinator to begin the move of job " + options.job,
                      "`gpumigrate migrations` shows whether it has begun"});
  const bool is_followed = !options.detach && !options.dry_run;
  if (is_followed)
    wait.note_first_interrupt(
        "Interrupted: the move is aborted once its id is known (interrupt again to let it continue)");
  return context.coordinator.post("/v1/jobs/" + path_part(options.job) + "/migrate", body,
                                  is_followed ? 2 : 1);
}

// Begins the wait for the end of the migration that the user names.
Result<std::unique_ptr<Wait>> begin_following(Context& context, const std::string& given,
                                              const std::string& timeout) {
  return Wait::begin(
      context,
      {"the end of migration " + given, "`gpumigrate watch " + given + "` shows whether it continues"},
      timeout, WaitKind::kFollow);
}

int report_end_of_following(Context& context, Wait& wait, const Error& error) {
  return wait.is_limit(error) ? report_wait(context, wait, error) : report_unfollowed(context, error);
}

// Prints the outcomes of the other ranks of the move. Their migrations end in the same way, shortly after
// this one.
void print_other_ranks(Context& context, const Json& migration, Wait& wait) {
  const auto lead = record::from_answer<api::MigrationDetail>(migration);
  if (lead.migration.gang_move != lead.migration.id) return;
  for (const std::string& id : lead.moved_with) {
    auto other = follow_migration(context, id, OnInterrupt::kLeave, wait);
    if (!other) return;
    context.out << view_outcome(record::from_answer<api::Migration>(*other), context.layout()) << std::flush;
  }
}

int follow_and_print(Context& context, const std::string& id, OnInterrupt on_interrupt, Wait& wait) {
  auto migration = follow_migration(context, id, on_interrupt, wait);
  if (!migration) return report_end_of_following(context, wait, migration.error());
  const int outcome = print_outcome(context, *migration);
  if (!context.json) print_other_ranks(context, *migration, wait);
  return outcome;
}

}  // namespace

int migrate_job(Context& context, const MigrateOptions& options) {
  auto body = request_of(options);
  if (!body) return report(context, body.error());
  auto answer = order_move(context, options, *body);
  if (!answer) {
    const int code = report(context, answer.error());
    if (code == kUnknown)
      context.note("`gpumigrate migrations` shows whether " + options.job + " is being moved");
    return code;
  }
  const Json& migration = *answer;
  if (options.dry_run) {
    const auto plan = record::from_answer<api::MovePlan>(migration);
    if (context.json) {
      context.print(migration);
    } else {
      context.out << view_plan(plan, options.each, context.layout()) << std::flush;
    }
    return plan.possible ? kDone : kRefused;
  }
  if (options.detach) return print_migration(context, migration);
  Wait wait(context, {}, std::nullopt, WaitKind::kFollow);
  return follow_and_print(context, record::from_answer<api::Migration>(migration).id, OnInterrupt::kAbort,
                          wait);
}

int watch_migration(Context& context, const std::string& given, const std::string& timeout) {
  auto begun = begin_following(context, given, timeout);
  if (!begun) return report(context, begun.error());
  Wait& wait = **begun;
  auto id = migration_of(context, given);
  if (!id) return report_wait(context, wait, id.error());
  // A migration that does not exist is refused at once. Only contact that is lost later is retried.
  auto known = context.coordinator.get(migration_path(*id));
  if (!known) return report_wait(context, wait, known.error());
  return follow_and_print(context, *id, OnInterrupt::kLeave, wait);
}

int abort_migration(Context& context, const std::string& given, const std::string& reason,
                    const std::string& timeout) {
  Json body = Json::object();
  if (!reason.empty()) body["reason"] = reason;
  auto begun = begin_following(context, given, timeout);
  if (!begun) return report(context, begun.error());
  Wait& wait = **begun;
  auto meant = migration_of(context, given);
  if (!meant) return report_wait(context, wait, meant.error());
  const std::string& id = *meant;
  auto answer = context.coordinator.post(migration_path(id) + "/abort", body);
  if (!answer) return report_wait(context, wait, answer.error());
  auto migration = follow_migration(context, id, OnInterrupt::kLeave, wait);
  if (!migration) return report_end_of_following(context, wait, migration.error());
  const int outcome = print_outcome(context, *migration);
  // The abort was too late, and the job has moved.
  if (outcome == kDone) return kRefused;
  return outcome == kInterrupted ? kDone : outcome;
}

int set_limit(Context& context, const std::string& given, const std::string& what, const std::string& value) {
  Json body;
  if (what == "max-downtime") {
    auto limit = milliseconds_option("max-downtime", value);
    if (!limit) return report(context, limit.error());
    body["max_downtime_ms"] = *limit;
  } else {
    auto limit = option_value("bandwidth", tools::parse_rate(value));
    if (!limit) return report(context, limit.error());
    body["bandwidth"] = *limit;
  }
  auto id = migration_of(context, given);
  if (!id) return report(context, id.error());
  const std::string path = migration_path(*id);
  auto before = context.coordinator.get(path);
  if (!before) return report(context, before.error());
  auto answer = context.coordinator.post(path + "/set", body);
  if (!answer) return report(context, answer.error());
  if (context.json) return print_migration(context, *answer);
  context.out << view_change(record::from_answer<api::Migration>(*before),
                             record::from_answer<api::Migration>(*answer), what)
              << std::flush;
  return kDone;
}

int resolve_migration(Context& context, const std::string& given, const std::string& at,
                      const std::string& timeout) {
  auto begun = begin_following(context, given, timeout);
  if (!begun) return report(context, begun.error());
  Wait& wait = **begun;
  auto meant = migration_of(context, given);
  if (!meant) return report_wait(context, wait, meant.error());
  const std::string& id = *meant;
  auto answer = context.coordinator.post(migration_path(id) + "/resolve", {{"at", at}});
  if (!answer) return report_wait(context, wait, answer.error());
  return follow_and_print(context, id, OnInterrupt::kLeave, wait);
}

}  // namespace ckpt::cli
