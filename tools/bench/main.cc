// SPDX-License-Identifier: Apache-2.0
// gpumigrate-bench: measures the parts of a move, and whole moves compared with plain tools, on the available
// CUDA driver. Exit codes: 0 measured; 1 a section failed, or with --require-goals a goal was missed; 64
// usage.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libckpt/command_line/command_line.h"
#include "tools/bench/bench.h"
#include "tools/bench/measuring/child.h"
#include "tools/common/units.h"

namespace ckpt::bench {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 64;
constexpr std::uint64_t kMinBytes = std::uint64_t{4} << 20;

struct Entry {
  const char* name;
  const char* summary;
  Result<void> (*run)(const BenchOptions&, Report&);
};

constexpr Entry kEntries[] = {
#define BENCH_SECTION(name, summary) {#name, summary, &bench_##name},
#include "tools/bench/sections.def"
#undef BENCH_SECTION
};

struct Arguments {
  BenchOptions options;
  std::vector<std::string> sections;
  std::string json;
  std::string markdown;
  bool require_goals = false;
};

bool wanted(const Arguments& arguments, const std::string& name) {
  for (const std::string& section : arguments.sections)
    if (section == name || section == "all") return true;
  return arguments.sections.empty();
}

void run_sections(const Arguments& arguments, Report& report) {
  for (const Entry& entry : kEntries) {
    // A section may already have been measured for another section that depends on it.
    if (!wanted(arguments, entry.name) || report.find_section(entry.name) != nullptr) continue;
    std::fprintf(stderr, "%s ...\n", entry.name);
    const Result<void> done = entry.run(arguments.options, report);
    if (!done) report.add_failure(entry.name, entry.summary, done.error());
  }
}

Result<int> write_report(const Arguments& arguments, const Report& report) {
  report.print_table(stdout);
  if (!arguments.json.empty()) {
    CKPT_TRYV(write_file(arguments.json, report.to_json().dump(2) + "\n"));
  }
  if (!arguments.markdown.empty()) {
    CKPT_TRYV(write_file(arguments.markdown, report.to_markdown()));
  }
  if (report.any_failed()) return kFailed;
  return arguments.require_goals && !report.all_goals_passed() ? kFailed : 0;
}

std::vector<std::string> section_names() {
  std::vector<std::string> names{"all"};
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

int run(int argc, char** argv) {
  Arguments arguments;
  std::string bytes = "1GiB";
  CommandLine app("Measures a move and its parts, compared with plain tools on the same machine");
  app.add_option("section", arguments.sections, "Sections to measure (all)").one_of(section_names());
  app.add_option("--pairs", arguments.options.pairs, "Interleaved runs of each pair")
      .in_range(1, 1000)
      .shows_default();
  app.add_option("--bytes", bytes, "State that is scanned, copied and moved").shows_default();
  app.add_option("--json", arguments.json, "Write the report as JSON to this file");
  app.add_option("--markdown", arguments.markdown, "Write the report as Markdown to this file");
  app.add_option("--output", arguments.options.output, "Folder for plots and their scripts").shows_default();
  app.add_flag("--require-goals", arguments.require_goals, "Exit with 1 if a goal is missed");
  if (const auto end = app.parse(argc, argv)) return end->print() == 0 ? 0 : kUsage;
  const auto size = tools::parse_size(bytes);
  if (!size || *size < kMinBytes) {
    std::fprintf(stderr, "gpumigrate-bench: --bytes %s: a size of at least 4MiB is needed\n", bytes.c_str());
    return kUsage;
  }
  arguments.options.bytes = *size / kMinBytes * kMinBytes;
  arguments.options.program = std::filesystem::read_symlink("/proc/self/exe");
  arguments.options.program_folder = std::filesystem::path(arguments.options.program).parent_path();

  Report report(collect_facts({argv, static_cast<std::size_t>(argc)}));
  run_sections(arguments, report);
  const auto code = write_report(arguments, report);
  if (code) return *code;
  std::fprintf(stderr, "gpumigrate-bench: %s\n", code.error().to_string().c_str());
  return kFailed;
}

}  // namespace
}  // namespace ckpt::bench

int main(int argc, char** argv) {
  if (argc >= 2 && std::string_view(argv[1]) == ckpt::bench::kChildCommand)
    return ckpt::bench::run_child(argc, argv);
  return ckpt::bench::run(argc, argv);
}
