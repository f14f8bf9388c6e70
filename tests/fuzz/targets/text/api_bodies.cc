// SPDX-License-Identifier: Apache-2.0
// Bodies of the coordinator's HTTP API, read in the same way as a migration's options.
#include "coordinator/requests/body_reader.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using ckpt::coordinator::BodyReader;
  ckpt::fuzz::Input input(data, size);
  auto parsed = BodyReader::parse(input.text());
  if (!parsed) return 0;
  BodyReader body = *std::move(parsed);
  const auto to = body.text("to");
  if (to) FUZZ_CHECK(to->find('\0') == std::string::npos);
  const auto mode = body.named<ckpt::wire::MigrateStrategy>("strategy");
  if (mode) FUZZ_CHECK(ckpt::record::has_name(*mode));
  const auto bytes = body.integer("bandwidth", 0, 1 << 20);
  if (bytes) FUZZ_CHECK(*bytes >= 0 && *bytes <= 1 << 20);
  const auto share = body.number("slowdown_percent", 0, 100);
  if (share) FUZZ_CHECK(*share >= 0 && *share <= 100);
  (void)body.boolean("dry_run");
  const auto argv = body.texts("argv");
  if (argv)
    for (const std::string& word : *argv) FUZZ_CHECK(word.find('\0') == std::string::npos);
  const auto env = body.environment("env");
  if (env)
    for (const std::string& entry : *env)
      FUZZ_CHECK(entry.find('=') != std::string::npos && entry.find('\0') == std::string::npos);
  (void)body.finish();
  return 0;
}
