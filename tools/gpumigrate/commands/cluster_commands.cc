// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/client/views.h"
#include "tools/gpumigrate/commands/commands.h"

namespace ckpt::cli {
namespace {

int print_list(Context& context, const char* path, std::string (*view)(const Json&)) {
  auto list = context.coordinator.get(path);
  if (!list) return report(context, list.assume_error());
  if (context.json) {
    context.print(list.assume_value());
  } else {
    context.out << view(list.assume_value()) << std::flush;
  }
  return kDone;
}

}  // namespace

int list_nodes(Context& context) {
  return print_list(context, "/v1/nodes", view_nodes);
}

int list_gpus(Context& context) {
  return print_list(context, "/v1/gpus", view_gpus);
}

int show_events(Context& context, bool follow) {
  std::uint64_t since = 0;
  for (;;) {
    auto answer = context.coordinator.get("/v1/events?since=" + std::to_string(since) +
                                          "&limit=1000&follow_ms=" + (follow ? "30000" : "0"));
    if (!answer) return report(context, answer.assume_error());
    const Json& events = member(answer.assume_value(), "events");
    for (const Json& event : events) {
      // One line each in both forms, so that a reader of a stream needs no end.
      context.out << (context.json ? event.dump(-1, ' ', false, Json::error_handler_t::replace)
                                   : view_event(event))
                  << "\n";
    }
    context.out << std::flush;
    since = static_cast<std::uint64_t>(number_of(answer.assume_value(), "next", static_cast<double>(since)));
    if (!follow && events.empty()) return kDone;
  }
}

int show_version(Context& context) {
  auto status = context.coordinator.get("/v1/status");
  const std::string coordinator = status ? text_of(status.assume_value(), "version") : "not reachable";
  if (context.json) {
    context.print(
        {{"gpumigrate", GPUMIGRATE_VERSION}, {"coordinator", status ? Json(coordinator) : Json(nullptr)}});
  } else {
    context.out << "gpumigrate " GPUMIGRATE_VERSION "\ncoordinator " << printable(coordinator) << "\n";
  }
  return kDone;
}

}  // namespace ckpt::cli
