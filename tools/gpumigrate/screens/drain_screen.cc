// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/screens/drain_screen.h"

#include <algorithm>

#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {
namespace {

bool is_gone(const api::DrainJob& job) {
  return job.state == "moved" || job.state == "restored" || job.state == "ended";
}

bool is_on_its_way(const api::DrainJob& job) {
  return job.state == "moving" || job.state == "restoring";
}

// Returns the migration of the job, or null if `migrations` does not contain it.
const api::Migration* migration_of_job(const api::DrainJob& job,
                                       const std::vector<api::Migration>& migrations) {
  for (const api::Migration& migration : migrations)
    if (job.migration == migration.id) return &migration;
  return nullptr;
}

}  // namespace

int DrainScreen::percent(const api::Drain& drain, const std::vector<api::Migration>& migrations) {
  if (drain.jobs.empty()) return highest_;
  int sum = 0;
  for (const api::DrainJob& job : drain.jobs) {
    if (is_gone(job)) sum += 100;
    if (job.state != "moving") continue;
    const api::Migration* migration = migration_of_job(job, migrations);
    if (migration != nullptr) sum += std::max(progress_.percent(*migration), 0);
  }
  const int now = sum / static_cast<int>(drain.jobs.size());
  highest_ = std::max(highest_, drain.open ? std::min(now, 99) : now);
  return highest_;
}

// Returns the first line. If it does not fit, its less important parts are omitted.
std::string DrainScreen::head(const api::Drain& drain, int done, std::size_t columns) const {
  const auto& jobs = drain.jobs;
  const auto count = [&jobs](auto holds) {
    return std::to_string(std::count_if(jobs.begin(), jobs.end(), holds));
  };
  const std::string name = printable(drain.id + " " + drain.place);
  const std::string gone = count(is_gone) + " of " + std::to_string(jobs.size()) + " gone";
  const std::string moving = ", " + count(is_on_its_way) + " moving, " +
                             count([](const api::DrainJob& job) { return job.state == "blocked"; }) +
                             " blocked";
  const std::string figure = std::to_string(done) + "%  ";
  const std::string hint = "  (Ctrl-C leaves it running)";
  for (const std::string& line : {name + "  " + bar_of(done) + " " + figure + gone + moving + hint,
                                  name + "  " + bar_of(done) + " " + figure + gone + moving,
                                  name + "  " + figure + gone + moving, bar_of(done) + " " + figure + gone}) {
    if (width_of(line) <= columns) return line;
  }
  return shortened(figure + gone, columns);
}

std::string DrainScreen::view(const api::Drain& drain, const std::vector<api::Migration>& migrations,
                              std::size_t columns) {
  std::string out = head(drain, percent(drain, migrations), columns) + "\n";
  for (const api::DrainJob& job : drain.jobs) {
    if (!is_on_its_way(job)) continue;
    const api::Migration* migration = migration_of_job(job, migrations);
    const std::string line = migration != nullptr
                                 ? progress_.line(*migration, columns)
                                 : printable(job.name + " > " + job.to.value_or("-") + "  " + job.state);
    out += shortened(line, columns) + "\n";
  }
  return out;
}

}  // namespace ckpt::cli
