// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/screens/lists.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>

#include "libckpt/record/document.h"
#include "tools/gpumigrate/client/cluster_views.h"
#include "tools/gpumigrate/client/list_views.h"
#include "tools/gpumigrate/client/progress.h"

namespace ckpt::cli {
namespace {

template <typename Keep>
Json kept_of(const Json& list, Keep keep) {
  Json out = Json::array();
  for (const Json& entry : list)
    if (keep(entry)) out.push_back(entry);
  return out;
}

// Returns a text like "moving 62%" for each moving job. One page suffices, because it has the newest
// migrations and therefore all open ones.
Result<std::map<std::string, std::string>> moves_of(Context& context, Progress& progress) {
  CKPT_TRY(answer, context.coordinator.get("/v1/migrations?limit=100"));
  std::map<std::string, std::string> moves;
  for (const api::Migration& migration : migrations_in(answer)) {
    if (!migration.open) continue;
    const int percent = progress.percent(migration);
    moves[migration.job] = percent < 0 ? "moving" : "moving " + std::to_string(percent) + "%";
  }
  return moves;
}

bool any_moves(const std::vector<api::Job>& jobs) {
  return std::any_of(jobs.begin(), jobs.end(), [](const api::Job& job) { return job.state == "migrating"; });
}

bool is_open_migration(const Json& migration) {
  return record::from_answer<api::Migration>(migration).open;
}

}  // namespace

std::string hidden_text(std::size_t hidden, const char* what) {
  if (hidden == 0) return "";
  return std::to_string(hidden) + " " + what + " hidden (-a shows them)";
}

bool is_state_wanted(const std::string& state, const std::string& wanted) {
  if (wanted.empty()) return true;
  std::istringstream list(wanted);
  for (std::string one; std::getline(list, one, ',');)
    if (one == state) return true;
  return false;
}

Result<void> check_states(const std::string& wanted, const std::vector<std::string>& known) {
  std::istringstream list(wanted);
  for (std::string one; std::getline(list, one, ',');) {
    if (std::find(known.begin(), known.end(), one) != known.end()) continue;
    std::string all;
    for (const std::string& state : known) all += (all.empty() ? "" : ", ") + state;
    return Error(ErrorCode::kInvalidArgument, "--state: \"" + one + "\" is not one of " + all);
  }
  return ok();
}

Result<void> check_node(Context& context, const std::string& wanted, const Json& found) {
  if (wanted.empty() || !found.empty()) return ok();
  const std::string name = wanted.substr(0, wanted.rfind(':'));
  CKPT_TRY(nodes, context.coordinator.get("/v1/nodes"));
  for (const auto& node : record::list_from_answer<api::Node>(nodes))
    if (node.name == name || node.name == wanted) return ok();
  return Error(ErrorCode::kNotFound, "--node: there is no node \"" + wanted + "\"; see `gpumigrate nodes`");
}

bool is_place_wanted(const std::string& place, const std::string& wanted) {
  return wanted.empty() || place == wanted || place.starts_with(wanted + ":");
}

bool is_name_wanted(const std::string& name, const std::string& wanted) {
  return wanted.empty() || ::fnmatch(wanted.c_str(), name.c_str(), 0) == 0;
}

std::size_t hide_older(Json& list, bool (*is_open)(const Json&), std::size_t max_ended) {
  std::size_t older = 0;
  Json out = Json::array();
  for (const Json& entry : list)
    if (is_open(entry) || ++older <= max_ended) out.push_back(entry);
  const std::size_t hidden = list.size() - out.size();
  list = std::move(out);
  return hidden;
}

AskList jobs_list(const ListOptions& options) {
  const auto progress = std::make_shared<Progress>();
  return [options, progress](Context& context) -> Result<ListAnswer> {
    CKPT_TRYV(check_states(options.state,
                           {"starting", "running", "migrating", "paused", "stopping", "suspending", "parked",
                            "restoring", "exited", "failed", "lost", "unreachable", "unknown"}));
    CKPT_TRY(jobs, context.coordinator.get_all("/v1/jobs", "jobs"));
    ListAnswer answer{.list = kept_of(jobs, [&](const Json& entry) {
                        const auto job = record::from_answer<api::Job>(entry);
                        return is_place_wanted(place_of(job), options.node) &&
                               is_name_wanted(job.name, options.name) &&
                               is_state_wanted(job.state, options.state);
                      })};
    CKPT_TRYV(check_node(context, options.node, answer.list));
    // --state also shows ended jobs.
    const bool all = options.all || !options.state.empty();
    auto shown = record::list_from_answer<api::Job>(answer.list);
    std::erase_if(shown, [all](const api::Job& job) { return !all && has_ended(job); });
    answer.footer = hidden_text(answer.list.size() - shown.size(), "ended jobs");
    if (shown.empty() && answer.footer.empty()) answer.footer = "no jobs";
    std::map<std::string, std::string> moves;
    if (any_moves(shown)) {
      CKPT_TRY(found, moves_of(context, *progress));
      moves = std::move(found);
    }
    answer.view = [shown, moves](const Layout& layout) {
      return view_jobs(shown, layout, [&moves](const std::string& job) {
        const auto move = moves.find(job);
        return move == moves.end() ? std::string() : move->second;
      });
    };
    return answer;
  };
}

AskList nodes_list(const ListOptions& options) {
  return [options](Context& context) -> Result<ListAnswer> {
    CKPT_TRYV(check_states(options.state, {"ready", "unreachable"}));
    CKPT_TRY(nodes, context.coordinator.get("/v1/nodes"));
    ListAnswer answer{.list = kept_of(nodes, [&](const Json& entry) {
                        const auto node = record::from_answer<api::Node>(entry);
                        return is_name_wanted(node.name, options.name) &&
                               is_state_wanted(node.state, options.state);
                      })};
    answer.view = [list = record::list_from_answer<api::Node>(answer.list)](const Layout& layout) {
      return view_nodes(list, layout);
    };
    return answer;
  };
}

AskList gpus_list(const ListOptions& options) {
  return [options](Context& context) -> Result<ListAnswer> {
    CKPT_TRY(gpus, context.coordinator.get("/v1/gpus"));
    ListAnswer answer{.list = kept_of(gpus, [&](const Json& entry) {
                        const auto gpu = record::from_answer<api::Gpu>(entry);
                        return is_place_wanted(gpu.node + ":" + std::to_string(gpu.index), options.node);
                      })};
    CKPT_TRYV(check_node(context, options.node, answer.list));
    answer.view = [list = record::list_from_answer<api::Gpu>(answer.list)](const Layout& layout) {
      return view_gpus(list, layout);
    };
    return answer;
  };
}

AskList migrations_list(const ListOptions& options) {
  return [options](Context& context) -> Result<ListAnswer> {
    CKPT_TRYV(check_states(options.state, {"open", "done", "failed", "timed-out", "interrupted", "restored",
                                           "lost", "refused"}));
    CKPT_TRY(migrations, context.coordinator.get_all("/v1/migrations", "migrations"));
    ListAnswer answer{.list = kept_of(migrations, [&](const Json& entry) {
                        const auto migration = record::from_answer<api::Migration>(entry);
                        const std::string state = migration.open ? "open" : migration.result.value_or("-");
                        return (is_place_wanted(migration.from, options.node) ||
                                is_place_wanted(migration.to, options.node)) &&
                               is_name_wanted(migration.job_name, options.name) &&
                               is_state_wanted(state, options.state);
                      })};
    CKPT_TRYV(check_node(context, options.node, answer.list));
    Json shown = answer.list;
    if (!options.all)
      answer.footer = hidden_text(hide_older(shown, is_open_migration, kOlderShown), "older migrations");
    answer.view = [shown = migrations_in(shown)](const Layout& layout) {
      return view_migrations(shown, layout);
    };
    return answer;
  };
}

AskList images_list(const ListOptions& options) {
  return [options](Context& context) -> Result<ListAnswer> {
    CKPT_TRY(images, context.coordinator.get_all("/v1/images", "images"));
    ListAnswer answer{.list = kept_of(images, [&](const Json& entry) {
                        const auto image = record::from_answer<api::Image>(entry);
                        return is_place_wanted(image.node, options.node) &&
                               is_name_wanted(image.job_name.value_or("-"), options.name);
                      })};
    CKPT_TRYV(check_node(context, options.node, answer.list));
    if (answer.list.empty()) answer.footer = "no images";
    answer.view = [list = record::list_from_answer<api::Image>(answer.list)](const Layout& layout) {
      return view_images(list, layout);
    };
    return answer;
  };
}

}  // namespace ckpt::cli
