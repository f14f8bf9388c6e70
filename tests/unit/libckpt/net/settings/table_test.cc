// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/settings/table.h"

#include <gtest/gtest.h>

namespace ckpt::settings {
namespace {

struct Values {
  std::string name;
  std::string level = "info";
  bool on = true;
  std::uint16_t port = 7;
  std::chrono::milliseconds pause{50};
  std::vector<std::string> folders = {"/a"};
  std::string key;

  std::vector<Setting> list() {
    return {{"name", &name, "A name.", {.required = true}},
            {"level", &level, "A level.", {.words = {"info", "warn", "off"}}},
            {"on", &on, "A switch."},
            {"port", &port, "A port.", {.max = 65535}},
            {"timeouts.pause_ms", &pause, "A time.", {.min = 1, .max = 100}},
            {"folders", &folders, "Folders."},
            {"tls.key", &key, "A key.", {.required = true}}};
  }
  std::string read(const std::string& text, const std::vector<std::string>& elsewhere = {}) {
    const auto table = parse(text, "f");
    if (!table) return table.error().message();
    const auto done = settings::read(*table, "f", list(), elsewhere);
    return done ? "" : done.error().message();
  }
};

TEST(SettingsTable, AcceptsTheListedSettings) {
  Values values;
  EXPECT_EQ(values.read("name = 'a'\nlevel = 'off'\non = false\nport = 65535\nfolders = ['/b', '/c']\n"
                        "[timeouts]\npause_ms = 100\n"),
            "");
  EXPECT_EQ(values.name, "a");
  EXPECT_EQ(values.level, "off");
  EXPECT_FALSE(values.on);
  EXPECT_EQ(values.port, 65535);
  EXPECT_EQ(values.folders, (std::vector<std::string>{"/b", "/c"})) << "a list replaces its default";
  EXPECT_EQ(values.pause.count(), 100);
}

TEST(SettingsTable, RefusesUnlistedSettings) {
  Values values;
  EXPECT_EQ(values.read("name = 'a'\nnam = 'b'\n"), "f: unknown key \"nam\" at line 2");
  EXPECT_EQ(values.read("name = 'a'\n[timeouts]\npause = 1\n"),
            "f: unknown key \"timeouts.pause\" at line 3");
  EXPECT_EQ(values.read("name = 'a'\ntimeouts = 1\n"), "f: \"timeouts\" must be a table");
  EXPECT_EQ(values.read("name = 'a'\nmore = 1\n", {"more"}), "");
}

TEST(SettingsTable, ErrorForARenamedSettingHasItsCurrentName) {
  std::string store;
  std::chrono::milliseconds handover{5};
  const std::vector<Setting> list = {{"checkpoint_store_dir", &store, "A folder."},
                                     {"timeouts.handover_ms", &handover, "A time."}};
  const auto error_of = [&list](const char* text) {
    const auto done = settings::read(*parse(text, "f"), "f", list);
    return done ? "" : done.error().message();
  };
  EXPECT_EQ(error_of("vault_dir = '/a'\n"),
            "f: unknown key \"vault_dir\" at line 1: it is now \"checkpoint_store_dir\"");
  EXPECT_EQ(error_of("[timeouts]\nswitch_ms = 1\n"),
            "f: unknown key \"timeouts.switch_ms\" at line 2: it is now \"timeouts.handover_ms\"");
  EXPECT_EQ(error_of("vault_timeout_ms = 1\n"), "f: unknown key \"vault_timeout_ms\" at line 1")
      << "this daemon has no such setting";
}

TEST(SettingsTable, ErrorDescribesTheExpectedValue) {
  Values values;
  EXPECT_EQ(values.read("on = true\n"), "f: \"name\" is required");
  EXPECT_EQ(values.read("name = ''\n"), "f: \"name\" must not be empty");
  EXPECT_EQ(values.read("name = 'a'\nlevel = 'loud'\n"), "f: \"level\" must be info, warn or off");
  EXPECT_EQ(values.read("name = 'a'\non = 1\n"), "f: \"on\" must be true or false");
  for (const char* wrong : {"-1", "65536", "'7'", "7.0"})
    EXPECT_EQ(values.read(std::string("name = 'a'\nport = ") + wrong + "\n"),
              "f: \"port\" must be a whole number from 0 to 65535");
  EXPECT_EQ(values.read("name = 'a'\n[timeouts]\npause_ms = 0\n"),
            "f: \"timeouts.pause_ms\" must be a whole number from 1 to 100");
  EXPECT_EQ(values.read("name = 'a'\nfolders = [1]\n"), "f: \"folders\" must be a list of strings");
  EXPECT_EQ(values.read("name = 'a'\n[tls]\n"), "f: \"tls.key\" is required");
  EXPECT_TRUE(values.read("name = [").starts_with("f: line 1: "));
}

TEST(SettingsTable, DescribesEachKeyWithItsDefault) {
  Values values;
  EXPECT_EQ(describe(values.list()),
            "| `name` | text | required | A name. |\n"
            "| `level` | `info`, `warn` or `off` | `\"info\"` | A level. |\n"
            "| `on` | `true` or `false` | `true` | A switch. |\n"
            "| `port` | 0 to 65535 | `7` | A port. |\n"
            "| `timeouts.pause_ms` | 1 to 100 ms | `50` | A time. |\n"
            "| `folders` | list of texts | `[\"/a\"]` | Folders. |\n"
            "| `tls.key` | text | required | A key. |\n");
}

}  // namespace
}  // namespace ckpt::settings
