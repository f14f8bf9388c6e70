// SPDX-License-Identifier: Apache-2.0
// The lists of the cluster: jobs, nodes, GPUs, migrations, images. What is over is hidden without `all`, but never in
// JSON, and a line below tells how much that is.
// Threads: one. Errors: as of show_list().
#pragma once

#include <string>

#include "tools/gpumigrate/screens/live_list.h"

namespace ckpt::cli {

struct ListOptions {
  bool all = false;
  bool watch = false;
  std::string node;   // NODE or NODE:GPU
  std::string state;  // several are separated by commas
  std::string name;   // with * and ? as in a shell
};

AskList jobs_list(const ListOptions& options);
AskList nodes_list(const ListOptions& options);
AskList gpus_list(const ListOptions& options);
AskList migrations_list(const ListOptions& options);
AskList images_list(const ListOptions& options);

// Whether a text is one of a list like "running,parked", and whether a place is the wanted one or on it. An
// empty wish takes all. Pure.
bool is_state_wanted(const std::string& state, const std::string& wanted);
bool is_place_wanted(const std::string& place, const std::string& wanted);
bool is_name_wanted(const std::string& name, const std::string& wanted);

// kInvalidArgument if one of the comma's list is none of `known`. Pure.
Result<void> check_states(const std::string& wanted, const std::vector<std::string>& known);
// kNotFound where nothing was found and there is no such node: nothing is no answer then.
Result<void> check_node(Context& context, const std::string& wanted, const Json& found);

// "43 ended jobs hidden (-a: all)", empty for none. Pure.
std::string hidden_text(std::size_t hidden, const char* what);

// Leaves the open entries and the first `kept` others in the list. Returns how many were removed. Pure.
std::size_t hide_older(Json& list, bool (*is_open)(const Json&), std::size_t kept);

inline constexpr std::size_t kOlderShown = 20;

}  // namespace ckpt::cli
