// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/hotset/options.h"

#include <map>

#include "tools/common/units.h"

namespace ckpt::examples {
namespace {

constexpr std::uint64_t kPage = 4096;

struct Texts {
  std::string bytes = "2GiB";
  std::string hot = "2%";
  std::string pattern = "stride";
  std::string drift = "0%";
  std::string append = "256KiB";
};

std::uint64_t whole_pages(const char* option, const std::string& text) {
  const std::uint64_t bytes = value_or_usage(option, tools::parse_size(text));
  if (bytes == 0 || bytes % kPage != 0)
    fail(std::string(option) + ": " + text + " is not a multiple of 4KiB", kUsage);
  return bytes / kPage;
}

void check_and_take(const Texts& texts, double step_ms, Options& options) {
  const std::map<std::string, Pattern> patterns = {{"stride", Pattern::kStride},
                                                   {"random", Pattern::kRandom},
                                                   {"append", Pattern::kAppend},
                                                   {"flip", Pattern::kFlip}};
  HotSetOptions& set = options.hot_set;
  const auto pattern = patterns.find(texts.pattern);
  if (pattern == patterns.end()) {
    fail("--pattern: \"" + texts.pattern + "\" is none of stride, random, append, flip", kUsage);
  }
  set.pattern = pattern->second;
  set.pages = whole_pages("--bytes", texts.bytes);
  set.append_pages = whole_pages("--append-bytes", texts.append);
  set.hot = value_or_usage("--hot", tools::parse_share(texts.hot));
  set.drift = value_or_usage("--drift", tools::parse_share(texts.drift));
  if (set.pages >= std::uint64_t{1} << 32) fail("--bytes: at most 16TiB", kUsage);
  if (set.append_pages > set.pages) fail("--append-bytes: more than --bytes", kUsage);
  if (set.drift > 0 && set.pattern == Pattern::kAppend)
    fail("--drift: append has no set that could drift", kUsage);
  if (!(step_ms >= 0) || step_ms > 3.6e6) fail("--step-ms: from 0 to 3600000", kUsage);
  options.bytes = set.pages * kPage;
  options.step_ns = static_cast<std::int64_t>(step_ms * 1e6);
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  Texts texts;
  double step_ms = 20;
  options.steps = 500;
  options.print_every = 50;
  options.hot_set.seed = 1;
  CommandLine app(
      "Rewrites a hot set of pages of device memory every step, and checks that memory holds what it must.");
  app.add_option("--bytes", texts.bytes, "Device memory (2GiB)");
  app.add_option("--hot", texts.hot, "Share of the 4 KiB pages that each step rewrites (2%)");
  app.add_option("--step-ms", step_ms, "A step lasts at least so many milliseconds (20)");
  app.add_option("--pattern", texts.pattern, "stride | random | append | flip (stride)");
  app.add_option("--append-bytes", texts.append, "Bytes that a step of the pattern append writes (256KiB)");
  app.add_option("--drift", texts.drift, "Share of the hot set that each step replaces (0%)");
  app.add_option("--steps", options.steps, "Steps to run (500); 0: until SIGINT or SIGTERM").not_negative();
  app.add_option("--seed", options.hot_set.seed, "Seed of pages and contents (1)").not_negative();
  app.add_option("--print-every", options.print_every, "Prints a line every so many steps (50); 0: never")
      .not_negative();
  app.add_option("--hold", options.hold, "The last step waits until this file is there");
  add_common_options(app, options.common);
  parse_or_exit(app, argc, argv);
  check_and_take(texts, step_ms, options);
  return options;
}

}  // namespace ckpt::examples
