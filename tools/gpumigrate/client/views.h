// SPDX-License-Identifier: Apache-2.0
// How the coordinator's answers look to people. Pure functions; fields that are missing show as
// "-". No line is longer than the layout is wide.
#pragma once

#include <string>
#include <vector>

#include "libckpt/api/event.h"
#include "libckpt/api/job.h"
#include "libckpt/api/migration.h"
#include "libckpt/api/plan.h"
#include "tools/gpumigrate/client/coordinator_client.h"
#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {

// `describe`. `moves`, `events`: the migrations and events to show, oldest first; `all`: also its instances
// and its memory's history.
std::string view_job(const api::JobDetail& detail, const std::vector<api::Migration>& moves,
                     const std::vector<api::Event>& events, bool all, const Layout& layout);
std::string view_job_state(const api::Job& job);  // "train (j3) exited 0, was at node-a:0"
// Dry runs. `each`: every GPU with its reasons; otherwise the chosen one's, and the causes counted.
std::string view_plan(const api::MovePlan& plan, bool each, const Layout& layout);
// The jobs that make place for another one, a line each.
std::string view_displaced(const std::vector<api::Displacement>& displaced, const std::string& tense,
                           const Layout& layout);
std::string view_run_plan(const api::RunPlan& plan, bool each, const Layout& layout);
// One line, ended; where the terminal is narrower, more lines, the later ones indented.
std::string view_event(const api::Event& event, const Layout& layout);

// The end of a migration: its report, or why there is none, and where the job runs.
std::string view_outcome(const api::Migration& migration, const Layout& layout);

// The change that `set` has made: "m15 big: bandwidth 12 → 40 MiB/s". `limit`: bandwidth or max-downtime.
std::string view_change(const api::Migration& before, const api::Migration& after, const std::string& limit);

// "2026-01-01T00:00:00.000Z" as "00:00:00Z" of the same day, else with its date.
std::string clock_text(const std::string& time, const Layout& layout);
// Within the layout, broken at blanks.
std::string paragraph(const std::string& text, const Layout& layout);
// "  name        value", wrapped where the layout has a width.
std::string field_line(const char* name, const std::string& value, const Layout& layout,
                       Tone tone = Tone::kPlain);
// The options that differ from a migration's usual ones, like "codec planes, slowdown 3%, bandwidth 1 GiB/s".
std::string options_text(const api::MigrateOptions& options);

}  // namespace ckpt::cli
