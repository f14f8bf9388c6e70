// SPDX-License-Identifier: Apache-2.0
// docs/site/settings.md is the output of tools/write-settings for the daemons' lists of keys.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "agent/settings/config.h"
#include "coordinator/settings/settings_list.h"
#include "libckpt/base/fd.h"

namespace ckpt {
namespace {

std::string page() {
  return read_file(GPUMIGRATE_SOURCE "/docs/site/settings.md", 1 << 20).value();
}

// Returns the keys of the rows below a heading.
std::set<std::string> keys_below(const std::string& heading) {
  std::set<std::string> keys;
  std::istringstream lines(page());
  std::string line;
  bool is_below = false;
  while (std::getline(lines, line)) {
    if (line.starts_with("## ")) is_below = line == heading;
    if (is_below && line.starts_with("| `")) keys.insert(line.substr(3, line.find('`', 3) - 3));
  }
  return keys;
}

TEST(SettingsPage, ContainsEveryKeyOfTheAgent) {
  EXPECT_NE(page().find(agent::settings_page()), std::string::npos) << "run tools/write-settings";
  agent::Config config;
  const auto keys = keys_below("## agent.toml");
  for (const auto& setting : agent::settings_of(config))
    EXPECT_TRUE(keys.contains(setting.key)) << setting.key;
}

TEST(SettingsPage, ContainsEveryKeyOfTheCoordinator) {
  EXPECT_NE(page().find(coordinator::settings_page()), std::string::npos) << "run tools/write-settings";
  coordinator::Config config;
  const auto keys = keys_below("## coordinator.toml");
  EXPECT_EQ(keys.size(), coordinator::settings_of(config).size());
}

}  // namespace
}  // namespace ckpt
