// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/screens/top.h"

#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/screens/full_screen.h"
#include "tools/gpumigrate/screens/top_view.h"

namespace ckpt::cli {
namespace {

constexpr std::chrono::milliseconds kTopRefresh{1000};

Result<ClusterNow> ask(Context& context) {
  ClusterNow cluster;
  CKPT_TRY(jobs, context.coordinator.get_all("/v1/jobs", "jobs"));
  CKPT_TRY(gpus, context.coordinator.get("/v1/gpus"));
  // The newest migrations include all open ones.
  CKPT_TRY(migrations, context.coordinator.get("/v1/migrations?limit=100"));
  cluster.jobs = std::move(jobs);
  cluster.gpus = std::move(gpus);
  cluster.migrations = migrations.is_array() ? std::move(migrations) : member(migrations, "migrations");
  return cluster;
}

int print_once(Context& context, const ClusterNow& cluster) {
  if (context.json) {
    context.print({{"jobs", cluster.jobs}, {"gpus", cluster.gpus}, {"migrations", cluster.migrations}});
    return kDone;
  }
  Progress progress;
  context.out << view_top(cluster, progress, context.layout()) << std::flush;
  return kDone;
}

int show(Context& context, FullScreen& screen, ClusterNow cluster) {
  HttpClient& http = context.coordinator.http();
  Progress progress;
  std::string trouble;
  while (http.consume_interrupts() == 0) {
    Layout layout = context.layout();
    layout.width = screen.size().columns;
    layout.colour = false;
    std::string text = view_top(cluster, progress, layout);
    if (!trouble.empty()) text = shortened(printable(trouble), layout.width) + "\n" + text;
    screen.draw(frame_of(text, screen.size()));
    if (screen.key(kTopRefresh) == 'q') break;
    auto next = ask(context);
    trouble = next ? "" : next.error().message() + "; retrying";
    if (next) cluster = *std::move(next);
  }
  return kDone;
}

}  // namespace

int show_top(Context& context) {
  // Handlers must be set before ncurses takes over the terminal, because ncurses does not replace existing
  // handlers.
  if (context.screen.terminal && !context.json) context.coordinator.http().catch_interrupts();
  auto first = ask(context);
  if (!first) return report(context, first.error());
  if (!context.screen.terminal || context.json) return print_once(context, *first);
  auto screen = FullScreen::open();
  if (!screen) return report(context, screen.error());
  return show(context, **screen, *std::move(first));
}

}  // namespace ckpt::cli
