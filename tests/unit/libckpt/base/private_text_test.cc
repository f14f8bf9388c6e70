// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/private_text.h"

#include <gtest/gtest.h>

namespace ckpt {
namespace {

constexpr PrivateParts kNothing;
constexpr PrivateParts kCommands{true, false};
constexpr PrivateParts kAll{true, true};

TEST(PrivateText, PrivatePartsAreShownOnlyToPermittedRoles) {
  const std::string text = "cannot start " + mark_private(PrivatePart::kCommand, "./train --key k") +
                           "; it said " + mark_private(PrivatePart::kOutput, "\"loss 3\"") + " at the end";
  EXPECT_FALSE(is_public(text));
  EXPECT_EQ(show_private(text, kAll), "cannot start ./train --key k; it said \"loss 3\" at the end");
  EXPECT_EQ(show_private(text, kCommands),
            "cannot start ./train --key k; it said (shown to the role admin) at the end");
  EXPECT_EQ(show_private(text, kNothing),
            "cannot start (shown to the role operator); it said (shown to the role admin) at the end");
  EXPECT_TRUE(is_public(show_private(text, kAll)));
}

TEST(PrivateText, EndMarkInsideAPartDoesNotEndThePart) {
  const std::string text = mark_private(
      PrivatePart::kOutput, "a" + std::string(kPrivateEndMark) + "secret" + std::string(kOutputMark));
  EXPECT_EQ(show_private(text, kNothing), "(shown to the role admin)");
  EXPECT_EQ(show_private(text, kAll), "asecret");
}

TEST(PrivateText, TruncatedPartExtendsToTheEnd) {
  const std::string whole = "x " + mark_private(PrivatePart::kOutput, "secret and more");
  EXPECT_EQ(show_private(whole.substr(0, whole.size() - 8), kNothing), "x (shown to the role admin)");
}

TEST(PrivateText, UnmarkedOutputInTextsOfEarlierVersionsIsHidden) {
  const std::string text = "The standby ended; its last output: \"secret\" (/a/log)";
  EXPECT_FALSE(is_public(text));
  EXPECT_EQ(show_private(text, kCommands), "The standby ended; its last output: (shown to the role admin)");
  EXPECT_EQ(show_private(text, kAll), text);
  const std::string marked =
      "its last output: " + mark_private(PrivatePart::kOutput, "\"secret\"") + " (/a/log)";
  EXPECT_EQ(show_private(marked, kNothing), "its last output: (shown to the role admin) (/a/log)");
}

}  // namespace
}  // namespace ckpt
