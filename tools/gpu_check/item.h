// SPDX-License-Identifier: Apache-2.0
// An item of gpu-check: one question about this machine, answered in a separate process (items.def lists the
// items). An item may hang or crash in the driver. The supervisor kills it at its deadline and reports that
// (supervisor.h).
//
// Statuses: passed; failed; "not possible here". The last one needs a reason and is not a failure: the
// machine lacks a required feature.
// Threads: an item has its own process. Errors: an Error of an item counts as failed.
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

// A part of an item, with its own result.
struct Part {
  std::string name;
  Status status = Status::kPassed;
  std::string reason;
};

struct Outcome {
  Status status = Status::kPassed;
  std::string reason;
  Json figures = Json::object();
  std::vector<Part> parts;

  void add(std::string name, Status status, std::string reason = "");
  // Derives the item's status from its parts. It is failed if one part failed, and "not possible here" if all
  // parts are. `reason` names the parts that did not pass.
  void sum_up();

 private:
  void summarize(Status shown);
};
[[nodiscard]] Outcome not_possible(std::string reason);
Json to_json(const Outcome& outcome);
Outcome outcome_of(const Json& json);  // converts JSON to an outcome; throws Json::exception

struct Setting {
  std::string programs;  // the folder of this program and the programs next to it
  std::string work;      // the folder for files of this run
  bool software = false;
  bool quick = false;  // true: items use small sizes, for tests
  Nanos deadline = 0;  // the item's deadline; work that is done in pieces stops before the deadline
};

struct Item {
  const char* name = nullptr;
  const char* question = nullptr;
  int seconds = 0;  // the time limit in seconds; shorter if the whole budget ends earlier
  Result<Outcome> (*run)(const Setting& setting) = nullptr;
  bool by_default = true;  // false: the item runs only if it is named
};

#define GPU_CHECK_ITEM(name, seconds, question) Result<Outcome> check_##name(const Setting& setting);
#include "tools/gpu_check/items.def"
#undef GPU_CHECK_ITEM

}  // namespace ckpt::gpu_check
