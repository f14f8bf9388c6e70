// SPDX-License-Identifier: Apache-2.0
// Option values of the examples: texts that are parsed strictly after CLI11 has read them, and the options
// all of them have.
// Threads: one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "libckpt/base/result.h"
#include "tools/examples/common/gpu.h"

namespace ckpt::examples {

constexpr int kUsage = 64;

// The value, or the end of the program with exit code 64 and one line that names the option.
template <typename T>
T value_or_usage(const char* option, Result<T> value) {
  if (!value) fail(std::string(option) + ": " + value.assume_error().message(), kUsage);
  return std::move(value).assume_value();
}

// What every example can be told.
struct CommonOptions {
  bool without_ckpt = false;
  bool print_times = false;
};

inline void add_common_options(CLI::App& app, CommonOptions& options) {
  app.add_flag(
      "--without-ckpt", options.without_ckpt,
      "Runs without libckpt, on plain device memory; cannot be moved. To measure what libckpt costs");
  app.add_flag("--print-times", options.print_times, "Adds the time of day, in seconds, to each line");
}

// Parses, or ends the program: 0 after --help, 64 after a mistake.
inline void parse_or_exit(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) std::exit(app.exit(error));
    fail(error.what(), kUsage);
  }
}

}  // namespace ckpt::examples
