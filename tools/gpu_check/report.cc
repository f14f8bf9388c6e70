// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/report.h"

#include <algorithm>
#include <cstdio>

#include "tools/common/units.h"

namespace ckpt::gpu_check {
namespace {

constexpr std::size_t kShownWhy = 400;

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string rate(const Json& figures, const char* name) {
  return tools::format_bytes(figures.at(name).get<double>()) + "/s";
}

std::string move_text(const Json& move) {
  return "downtime " + fixed(move.at("downtime_ms").get<double>(), 2) + " ms (bound " +
         fixed(move.at("bound_ms").get<double>(), 2) + " ms by " + move.at("bound_by").get<std::string>() +
         ") of " + tools::format_bytes(move.at("state_bytes").get<double>());
}

// Returns " (checkpoint 210.0 ms, restore 540.0 ms)"; empty without times.
std::string times_text(const Json& times) {
  constexpr std::string_view kPrefix = "cuCheckpointProcess";
  std::vector<std::string> parts;
  for (const auto& [name, value] : times.items())
    parts.push_back((name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name) + " " +
                    fixed(value.get<double>(), 1) + " ms");
  return parts.empty() ? "" : " (" + joined(parts) + ")";
}

// Returns the most important figures of an item on one line.
std::string summary(const std::string& item, const Json& figures) {
  std::vector<std::string> parts;
  if (item == "driver") {
    for (const Json& gpu : figures.at("gpus")) parts.push_back(gpu.at("name").get<std::string>());
    parts.push_back("CUDA " + figures.at("cuda").get<std::string>());
  } else if (item == "nvml") {
    if (figures.contains("event_types")) parts.push_back("events " + figures.at("event_types").dump());
    if (figures.contains("recovery_action"))
      parts.push_back("recovery action " + figures.at("recovery_action").dump());
    if (figures.contains("remapped_rows"))
      parts.push_back("remapped rows " + figures.at("remapped_rows").dump());
  } else if (item.starts_with("conformance")) {
    parts.push_back(figures.at("passed").dump() + " of " + figures.at("tests").dump() + " tests passed, " +
                    figures.at("skipped").dump() + " skipped");
  } else if (item == "rates") {
    for (const char* name :
         {"device_read", "fingerprint", "device_copy", "gather", "host_to_device", "device_to_host"})
      parts.push_back(std::string(name) + " " + rate(figures, name));
  } else if (item.starts_with("move_")) {
    for (const Json& move : figures.at("moves")) parts.push_back(move_text(move));
  } else if (item.starts_with("bench_")) {
    if (figures.at("goals").get<int>() > 0)
      parts.push_back(figures.at("goals_met").dump() + " of " + figures.at("goals").dump() + " goals met");
  } else if (item == "probe") {
    for (const auto& [name, variant] : figures.at("variants").items()) {
      if (variant.at("outcome") != "not possible here")
        parts.push_back(name + " " + variant.at("outcome").get<std::string>() + times_text(variant.at("ms")));
    }
  }
  return joined(parts);
}

std::string summary_of(const Line& line) {
  try {
    return summary(line.item->name, line.ended.outcome.figures);
  } catch (const Json::exception&) {
    return "";  // an item that stopped early has only some figures
  }
}

std::string shortened(const std::string& text) {
  return text.size() <= kShownWhy ? text : text.substr(0, kShownWhy) + "...";
}

std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

std::string text_of(const Line& line) {
  const Outcome& outcome = line.ended.outcome;
  char head[64];
  std::snprintf(head, sizeof head, "%-12s %-17s %6.1f s  ", line.item->name, name_of(outcome.status),
                line.ended.seconds);
  std::string text = head + summary_of(line);
  if (!outcome.reason.empty()) text += (summary_of(line).empty() ? "" : "; ") + shortened(outcome.reason);
  return text;
}

Json to_json(const Report& report) {
  Json items = Json::array();
  for (const Line& line : report.lines) {
    Json item = {{"name", line.item->name}, {"question", line.item->question}};
    item.update(to_json(line.ended.outcome));
    item["seconds"] = line.ended.seconds;
    if (!line.ended.output.empty()) item["output"] = line.ended.output;
    items.push_back(std::move(item));
  }
  return {{"version", GPUMIGRATE_VERSION},
          {"driver", report.driver},
          {"software_gpu", report.software},
          {"no_gpu", report.no_gpu},
          {"seconds", report.seconds},
          {"passed", !any_failed(report)},
          {"items", items}};
}

std::string to_markdown(const Report& report) {
  std::string text = "### gpu-check on " + report.driver + "\n\n";
  if (!report.no_gpu.empty()) return text + "No GPU: " + report.no_gpu + "\n";
  if (report.software) text += "**The software GPU: no claim about a real one.**\n\n";
  text += "gpumigrate " GPUMIGRATE_VERSION ", " + fixed(report.seconds, 0) + " s.\n\n";
  text += "| question | result | figures | notes |\n|---|---|---|---|\n";
  for (const Line& line : report.lines) {
    text += "| " + cell(line.item->question) + " | " + name_of(line.ended.outcome.status) + " | " +
            cell(summary_of(line)) + " | " + cell(shortened(line.ended.outcome.reason)) + " |\n";
  }
  for (const Line& line : report.lines) {
    const Json& figures = line.ended.outcome.figures;
    if (figures.contains("markdown")) text += "\n" + figures.at("markdown").get<std::string>();
  }
  return text;
}

bool any_failed(const Report& report) {
  return std::any_of(report.lines.begin(), report.lines.end(),
                     [](const Line& line) { return line.ended.outcome.status == Status::kFailed; });
}

}  // namespace ckpt::gpu_check
