// SPDX-License-Identifier: Apache-2.0
// An item of gpu-check: one question about this machine, asked in a process of its own (items.def lists
// them). An item may hang or die in the driver: the supervisor kills it at its deadline and reports that
// (supervisor.h).
//
// Statuses: passed; failed; "not possible here", which needs a reason and is no failure: the machine lacks
// what is asked for.
// Threads: an item has its process to itself. Errors: an Error of an item counts as failed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/base/result.h"

namespace ckpt::gpu_check {

using Json = nlohmann::ordered_json;

enum class Status { kPassed, kImpossible, kFailed };
[[nodiscard]] const char* name_of(Status status);

// Something an item is made of, with a result of its own.
struct Part {
  std::string name;
  Status status = Status::kPassed;
  std::string why;
};

struct Outcome {
  Status status = Status::kPassed;
  std::string why;
  Json figures = Json::object();
  std::vector<Part> parts;

  void add(std::string name, Status status, std::string why = "");
  // From the parts: failed if one is, "not possible here" if all are, and `why` names those that did not
  // pass.
  void sum_up();

 private:
  void say_of_all(Status shown);
};
[[nodiscard]] Outcome not_possible(std::string why);
Json to_json(const Outcome& outcome);
Outcome outcome_of(const Json& json);  // throws Json::exception

struct Setting {
  std::string programs;  // folder of this program and its siblings
  std::string work;      // folder for files of this run
  bool software = false;
  bool quick = false;  // small sizes, for tests
  Nanos deadline = 0;  // of the item: what can be done in pieces stops before it
};

struct Item {
  const char* name = nullptr;
  const char* question = nullptr;
  int seconds = 0;  // at most; less if the whole budget ends earlier
  Result<Outcome> (*run)(const Setting& setting) = nullptr;
  bool by_default = true;  // else only where it is named
};

#define GPU_CHECK_ITEM(name, seconds, question) Result<Outcome> check_##name(const Setting& setting);
#include "tools/gpu_check/items.def"
#undef GPU_CHECK_ITEM

}  // namespace ckpt::gpu_check
