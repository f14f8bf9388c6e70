// SPDX-License-Identifier: Apache-2.0
// The lists of the cluster: jobs, nodes, GPUs, migrations, images. Ended entries are hidden without `all`,
// and a line below the list counts them. JSON always has all entries.
// Threads: one. Errors: those of show_list().
#pragma once

#include <string>

#include "tools/gpumigrate/screens/live_list.h"

namespace ckpt::cli {

struct ListOptions {
  bool all = false;
  bool watch = false;
  std::string node;   // the filter for places: NODE or NODE:GPU
  std::string state;  // the filter for states, separated by commas
  std::string name;   // the filter for names, with * and ? as in a shell
};

AskList jobs_list(const ListOptions& options);
AskList nodes_list(const ListOptions& options);
AskList gpus_list(const ListOptions& options);
AskList migrations_list(const ListOptions& options);
AskList images_list(const ListOptions& options);

// These functions return whether an entry passes the filter `wanted`. A state matches a list like
// "running,parked". A place matches itself or its node, and a name matches a pattern. An empty filter matches
// all entries.
// Threads: pure functions.
bool is_state_wanted(const std::string& state, const std::string& wanted);
bool is_place_wanted(const std::string& place, const std::string& wanted);
bool is_name_wanted(const std::string& name, const std::string& wanted);

// Returns kInvalidArgument if a state of the list is not one of `known`.
// Threads: pure function.
Result<void> check_states(const std::string& wanted, const std::vector<std::string>& known);
// Returns kNotFound if nothing was found because the node does not exist.
Result<void> check_node(Context& context, const std::string& wanted, const Json& found);

// Returns a text like "43 ended jobs hidden (-a shows them)", or an empty text if no entries are hidden.
// Pure.
std::string hidden_text(std::size_t hidden, const char* what);

// Retains the open entries and the first `max_ended` other entries in the list. Returns the number of removed
// entries. Pure.
std::size_t hide_older(Json& list, bool (*is_open)(const Json&), std::size_t max_ended);

inline constexpr std::size_t kOlderShown = 20;

}  // namespace ckpt::cli
