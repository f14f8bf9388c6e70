// SPDX-License-Identifier: Apache-2.0
#include "libckpt/api/site.h"
#include "libckpt/base/clock.h"
#include "libckpt/record/document.h"
#include "tools/common/moment.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/client/views.h"
#include "tools/gpumigrate/commands/commands.h"

namespace ckpt::cli {
namespace {

// Returns the filter as a part of the query. The coordinator applies the filter.
Result<std::string> filter_of(const EventOptions& options) {
  std::string filter;
  if (!options.since.empty()) {
    auto since = tools::parse_moment_ms(options.since, wall_clock_ms());
    if (!since) return Error(ErrorCode::kInvalidArgument, "--since: " + since.error().message());
    filter += "&since_ms=" + std::to_string(*since);
  }
  if (!options.job.empty()) filter += "&job=" + path_part(options.job);
  std::string types;
  for (const std::string& type : options.types) types += (types.empty() ? "" : ",") + type;
  if (!types.empty()) filter += "&type=" + path_part(types);
  return filter;
}

// Prints a line for each event, so that a reader can process an endless stream. On a narrow terminal an event
// may take several lines.
void print_events(Context& context, const Json& events) {
  for (const Json& event : events) {
    context.out << (context.json ? event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"
                                 : view_event(record::from_answer<api::Event>(event), context.layout()));
  }
  context.out << std::flush;
}

}  // namespace

int show_events(Context& context, const EventOptions& options) {
  auto filter = filter_of(options);
  if (!filter) return report(context, filter.error());
  if (options.follow) context.coordinator.http().catch_interrupts();
  std::uint64_t since = 0;
  while (true) {
    auto answer =
        context.coordinator.get("/v1/events?since=" + std::to_string(since) +
                                "&limit=1000&follow_ms=" + (options.follow ? "30000" : "0") + *filter);
    if (context.coordinator.http().consume_interrupts() > 0)
      return report(context, Error(ErrorCode::kAborted,
                                   "Interrupted; `gpumigrate events -f` follows the events again"));
    if (!answer) return report(context, answer.error());
    const Json& events = member(*answer, "events");
    print_events(context, events);
    since = static_cast<std::uint64_t>(number_of(*answer, "next", static_cast<double>(since)));
    if (!options.follow && events.empty()) return kDone;
  }
}

int show_version(Context& context) {
  auto status = context.coordinator.get("/v1/status");
  const std::string coordinator =
      status ? record::from_answer<api::Status>(*status).version : "not reachable";
  if (context.json) {
    context.print(
        {{"gpumigrate", GPUMIGRATE_VERSION}, {"coordinator", status ? Json(coordinator) : Json(nullptr)}});
  } else {
    context.out << "gpumigrate " GPUMIGRATE_VERSION "\ncoordinator " << printable(coordinator) << "\n";
  }
  return kDone;
}

}  // namespace ckpt::cli
