// SPDX-License-Identifier: Apache-2.0
// The coordinator's answers as text for display.
// Threads: pure functions. A missing field is shown as "-". No line is longer than the layout's width.
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

// Shows a job for `describe`. `moves` and `events` are the migrations and events to show, oldest first. `all`
// also shows the job's instances and memory history.
std::string view_job(const api::JobDetail& detail, const std::vector<api::Migration>& moves,
                     const std::vector<api::Event>& events, bool all, const Layout& layout);
std::string view_job_state(const api::Job& job);  // returns a text like "train (j3) exited 0, was at
                                                  // node-a:0"
// These functions show dry runs. `each` shows every GPU with its reasons; otherwise the chosen GPU is shown,
// and a count for each cause.
std::string view_plan(const api::MovePlan& plan, bool each, const Layout& layout);
// Shows the jobs that free memory for another job, one line each.
std::string view_displaced(const std::vector<api::Displacement>& displaced, const std::string& tense,
                           const Layout& layout);
std::string view_run_plan(const api::RunPlan& plan, bool each, const Layout& layout);
// Returns one line with its line end. On a narrow terminal it is wrapped, and continuation lines are
// indented.
std::string view_event(const api::Event& event, const Layout& layout);

// Shows how a migration ended: its report, or the error and the place where the job runs.
std::string view_outcome(const api::Migration& migration, const Layout& layout);

// Shows the change that `set` made, like "m15 big: bandwidth 12 → 40 MiB/s". `limit` is bandwidth or
// max-downtime.
std::string view_change(const api::Migration& before, const api::Migration& after, const std::string& limit);

// Shortens a time like "2026-01-01T00:00:00.000Z" to "00:00:00Z". A time of another day keeps its date.
std::string clock_text(const std::string& time, const Layout& layout);
// Returns the text wrapped at blanks to the width of the layout.
std::string paragraph(const std::string& text, const Layout& layout);
// Returns a line "  name        value", wrapped if the layout has a width.
std::string field_line(const char* name, const std::string& value, const Layout& layout,
                       Tone tone = Tone::kPlain);
// Shows the options that differ from the defaults, like "codec planes, slowdown 3%, bandwidth 1 GiB/s".
std::string options_text(const api::MigrateOptions& options);

}  // namespace ckpt::cli
