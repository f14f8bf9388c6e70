// SPDX-License-Identifier: Apache-2.0
// Option values of the examples: texts that are parsed strictly after the command line has been read, and the
// options that all examples have.
// Threads: one.
#pragma once

#include <cstdlib>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/command_line/command_line.h"
#include "tools/examples/common/fail.h"

namespace ckpt::examples {

constexpr int kUsage = 64;

// Returns the value, or exits with code 64 and one line that names the option.
template <typename T>
T value_or_usage(const char* option, Result<T> value) {
  if (!value) fail(std::string(option) + ": " + value.error().message(), kUsage);
  return *std::move(value);
}

// The options that every example has.
struct CommonOptions {
  bool without_ckpt = false;
  bool print_times = false;
};

inline void add_common_options(Command& app, CommonOptions& options) {
  app.add_flag(
      "--without-ckpt", options.without_ckpt,
      "Run without libckpt, on plain device memory, to measure what libckpt costs; this job cannot be moved");
  app.add_flag("--print-times", options.print_times, "Add the time of day, in seconds, to each line");
}

// Parses the command line, or exits: with code 0 after --help, with code 64 after a mistake.
inline void parse_or_exit(CommandLine& app, int argc, char** argv) {
  const auto end = app.parse(argc, argv);
  if (!end) return;
  if (end->is_mistake()) fail(end->message, kUsage);
  std::exit(end->print());
}

}  // namespace ckpt::examples
