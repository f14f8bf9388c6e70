// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/screens/drain_screen.h"

#include <algorithm>

#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {
namespace {

bool is_gone(const Json& job) {
  const std::string state = text_of(job, "state");
  return state == "moved" || state == "restored" || state == "ended";
}

bool is_on_its_way(const Json& job) {
  const std::string state = text_of(job, "state");
  return state == "moving" || state == "restoring";
}

// Null if it is not among them.
const api::Migration* migration_of_job(const Json& job, const std::vector<api::Migration>& migrations) {
  for (const api::Migration& migration : migrations)
    if (migration.id == text_of(job, "migration")) return &migration;
  return nullptr;
}

}  // namespace

int DrainScreen::percent(const Json& drain, const std::vector<api::Migration>& migrations) {
  const Json& jobs = member(drain, "jobs");
  if (jobs.empty()) return highest_;
  int sum = 0;
  for (const Json& job : jobs) {
    if (is_gone(job)) sum += 100;
    if (text_of(job, "state") != "moving") continue;
    const api::Migration* migration = migration_of_job(job, migrations);
    if (migration != nullptr) sum += std::max(progress_.percent(*migration), 0);
  }
  const int now = sum / static_cast<int>(jobs.size());
  highest_ = std::max(highest_, flag_of(drain, "open") ? std::min(now, 99) : now);
  return highest_;
}

// What matters least leaves where it does not fit.
std::string DrainScreen::head(const Json& drain, int done, std::size_t columns) const {
  const Json& jobs = member(drain, "jobs");
  const auto count = [&jobs](auto holds) {
    return std::to_string(std::count_if(jobs.begin(), jobs.end(), holds));
  };
  const std::string name = printable(text_of(drain, "id") + " " + text_of(drain, "place"));
  const std::string gone = count(is_gone) + " of " + std::to_string(jobs.size()) + " gone";
  const std::string moving = ", " + count(is_on_its_way) + " moving, " +
                             count([](const Json& job) { return text_of(job, "state") == "blocked"; }) +
                             " blocked";
  const std::string figure = std::to_string(done) + "%  ";
  const std::string hint = "  (Ctrl-C: goes on)";
  for (const std::string& line : {name + "  " + bar_of(done) + " " + figure + gone + moving + hint,
                                  name + "  " + bar_of(done) + " " + figure + gone + moving,
                                  name + "  " + figure + gone + moving, bar_of(done) + " " + figure + gone}) {
    if (width_of(line) <= columns) return line;
  }
  return shortened(figure + gone, columns);
}

std::string DrainScreen::view(const Json& drain, const std::vector<api::Migration>& migrations,
                              std::size_t columns) {
  std::string out = head(drain, percent(drain, migrations), columns) + "\n";
  for (const Json& job : member(drain, "jobs")) {
    if (!is_on_its_way(job)) continue;
    const api::Migration* migration = migration_of_job(job, migrations);
    const std::string line =
        migration != nullptr
            ? progress_.line(*migration, columns)
            : printable(text_of(job, "name") + " > " + text_of(job, "to") + "  " + text_of(job, "state"));
    out += shortened(line, columns) + "\n";
  }
  return out;
}

}  // namespace ckpt::cli
