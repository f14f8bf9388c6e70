// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/toml_text.h"

#include <gtest/gtest.h>

namespace ckpt::control {
namespace {

bool accepted(std::string_view text) {
  return check_toml_text(text, "agent.toml").has_value();
}

TEST(TomlText, NonAsciiCharactersAreAcceptedInStringsAndComments) {
  EXPECT_TRUE(accepted(""));
  EXPECT_TRUE(accepted("home = \"/home/m\xC3\xBCller\"\n"));
  EXPECT_TRUE(accepted("home = '/home/m\xC3\xBCller' # f\xC3\xBCr alle\n"));
  EXPECT_TRUE(accepted("home = \"a\\\"\xC3\xBC\"\n"));
  EXPECT_TRUE(accepted("\xEF\xBB\xBFhome = 1\n"));
  EXPECT_TRUE(accepted("home = \"\"\"\nab\"\"\"\n"));
}

TEST(TomlText, NonAsciiCharactersElsewhereAreRefused) {
  EXPECT_FALSE(accepted("h\xC3\xBCme = 1\n"));
  EXPECT_FALSE(accepted("home = 1\xD0\x87\n"));
  EXPECT_FALSE(accepted("# comment\n\xC3\xBC\n"));
  EXPECT_FALSE(accepted("home = \"a\\\\\"\xC3\xBC\n"));
  EXPECT_FALSE(accepted("home = '\\'\xC3\xBC\n"));
  EXPECT_FALSE(accepted("home = \"\"\"\n\xC3\xBC\"\"\"\n"));
  EXPECT_FALSE(accepted("# \xE2\x80\xA8 \xC3\xBC\n"));
}

TEST(TomlText, ErrorNamesTheLine) {
  const auto refused = check_toml_text("a = 1\nb = \xC3\xBC\n", "agent.toml");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("agent.toml line 2"), std::string::npos);
}

}  // namespace
}  // namespace ckpt::control
