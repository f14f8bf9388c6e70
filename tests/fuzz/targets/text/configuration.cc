// SPDX-License-Identifier: Apache-2.0
// Configuration of the daemons: {whose u8, text}. An accepted configuration has the properties that the rest
// of the daemon relies on.
#include "agent/keeper/settings/config.h"
#include "agent/settings/config.h"
#include "coordinator/settings/config.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

void check_agent(const std::string& text) {
  const auto config = agent::parse_config(text, "agent.toml");
  if (!config) return;
  const agent::Config& c = *config;
  FUZZ_CHECK(agent::is_safe_name(c.node));
  FUZZ_CHECK(c.home.starts_with('/'));
  FUZZ_CHECK(c.staging_mib >= 16 && c.staging_mib <= 256);
  FUZZ_CHECK(c.lease_term.count() > 0 && c.pause_timeout.count() > 0 && c.handover_timeout.count() > 0);
  for (const std::string& entry : c.job_environment) FUZZ_CHECK(entry.find('=') != std::string::npos);
}

void check_coordinator(const std::string& text) {
  const auto config = coordinator::parse_config(text, "coordinator.toml");
  if (!config) return;
  const coordinator::Config& c = *config;
  for (const std::int64_t ms : {c.lease_term_ms, c.handover_timeout_ms, c.agent_idle_timeout_ms})
    FUZZ_CHECK(ms >= 100 && ms <= std::int64_t{24} * 3600 * 1000);
  FUZZ_CHECK(c.placement_margin_bytes >= 0 && c.placement_margin_bytes <= std::int64_t{1} << 50);
}

void check_keeper(const std::string& text) {
  const auto config = keeper::parse_config(text);
  if (config) FUZZ_CHECK(!config->argv.empty());
}

void check_visible_gpus(const std::string& text) {
  const auto gpus = agent::parse_visible_gpus(text.c_str());
  if (gpus) FUZZ_CHECK(gpus->size() <= text.size());
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::fuzz;
  Input input(data, size);
  const auto whose = input.number<std::uint8_t>();
  constexpr void (*kChecks[])(const std::string&) = {check_agent, check_coordinator, check_keeper,
                                                     check_visible_gpus};
  kChecks[whose % std::size(kChecks)](input.text());
  return 0;
}
