// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/item.h"

#include <algorithm>
#include <utility>

namespace ckpt::gpu_check {
namespace {

constexpr Status kStatuses[] = {Status::kPassed, Status::kImpossible, Status::kFailed};

Status status_of(const std::string& name) {
  for (const Status status : kStatuses) {
    if (name == name_of(status)) return status;
  }
  return Status::kFailed;
}

}  // namespace

const char* name_of(Status status) {
  switch (status) {
    case Status::kPassed:
      return "passed";
    case Status::kImpossible:
      return "not possible here";
    case Status::kFailed:
      break;
  }
  return "failed";
}

void Outcome::add(std::string name, Status part_status, std::string part_reason) {
  parts.push_back({std::move(name), part_status, std::move(part_reason)});
}

void Outcome::sum_up() {
  std::size_t counts[3] = {};
  for (const Part& part : parts) counts[static_cast<std::size_t>(part.status)]++;
  status = counts[2] > 0                                 ? Status::kFailed
           : !parts.empty() && counts[1] == parts.size() ? Status::kImpossible
                                                         : Status::kPassed;
  for (const Status shown : {Status::kFailed, Status::kImpossible}) summarize(shown);
}

// Lists the parts with that status. Parts with the same reason share one entry.
void Outcome::summarize(Status shown) {
  std::vector<std::pair<std::string, std::string>> groups;  // the shared reason, and the parts' names
  for (const Part& part : parts) {
    if (part.status != shown) continue;
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return group.first == part.reason; });
    if (same == groups.end()) {
      groups.emplace_back(part.reason, part.name);
    } else {
      same->second += ", " + part.name;
    }
  }
  for (const auto& [shared, names] : groups) {
    if (!reason.empty()) reason += "; ";
    reason += names + (shown == Status::kFailed ? " failed" : " not possible here") +
              (shared.empty() ? "" : ": " + shared);
  }
}

Outcome not_possible(std::string reason) {
  Outcome outcome;
  outcome.status = Status::kImpossible;
  outcome.reason = std::move(reason);
  return outcome;
}

Json to_json(const Outcome& outcome) {
  Json parts = Json::array();
  for (const Part& part : outcome.parts)
    parts.push_back({{"name", part.name}, {"status", name_of(part.status)}, {"why", part.reason}});
  return {{"status", name_of(outcome.status)},
          {"why", outcome.reason},
          {"figures", outcome.figures},
          {"parts", parts}};
}

Outcome outcome_of(const Json& json) {
  Outcome outcome;
  outcome.status = status_of(json.at("status").get<std::string>());
  outcome.reason = json.at("why").get<std::string>();
  outcome.figures = json.at("figures");
  for (const Json& part : json.at("parts"))
    outcome.parts.push_back({part.at("name").get<std::string>(),
                             status_of(part.at("status").get<std::string>()),
                             part.at("why").get<std::string>()});
  return outcome;
}

}  // namespace ckpt::gpu_check
