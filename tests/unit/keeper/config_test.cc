// SPDX-License-Identifier: Apache-2.0
#include "keeper/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ckpt::keeper {
namespace {

using Json = nlohmann::json;

Json good() {
  return {{"job", "j-1"},
          {"name", "train"},
          {"incarnation", 3},
          {"role", "standby"},
          {"argv", {"/bin/true", "a b"}},
          {"cwd", "/tmp"},
          {"env", {{"A", "1=2"}}},
          {"ranks", 1},
          {"uid", 1000},
          {"gid", 1001}};
}

TEST(KeeperConfig, ReadsEverything) {
  const Result<Config> config = parse_config(good().dump());
  ASSERT_TRUE(config.has_value()) << config.assume_error().to_string();
  const Config& value = config.assume_value();
  EXPECT_EQ(value.job, "j-1");
  EXPECT_EQ(value.incarnation, 3u);
  EXPECT_EQ(value.role, local::Role::kStandby);
  EXPECT_EQ(value.argv, (std::vector<std::string>{"/bin/true", "a b"}));
  EXPECT_EQ(value.env.at("A"), "1=2");
  EXPECT_EQ(value.uid, 1000u);
  EXPECT_EQ(value.gid, 1001u);
}

void expect_refused(const Json& document, const std::string& word) {
  const Result<Config> config = parse_config(document.dump());
  ASSERT_FALSE(config.has_value()) << word;
  EXPECT_NE(config.assume_error().message().find(word), std::string::npos) << config.assume_error().message();
}

TEST(KeeperConfig, NamesTheFieldThatIsWrong) {
  for (const char* field : {"job", "incarnation", "role", "argv", "cwd"}) {
    Json document = good();
    document.erase(field);
    expect_refused(document, field);
    document[field] = Json::array({1});
    expect_refused(document, field);
  }
  Json document = good();
  document["ranks"] = 2;
  expect_refused(document, "ranks");
  document = good();
  document["role"] = "king";
  expect_refused(document, "role");
  document = good();
  document["env"] = {{"A=B", "x"}};
  expect_refused(document, "env");
  document = good();
  document["uid"] = -1;
  expect_refused(document, "uid");
  document = good();
  document["argv"] = Json::array({std::string("a\0b", 3)});
  expect_refused(document, "argv");
  EXPECT_FALSE(parse_config("{").has_value());
  EXPECT_FALSE(parse_config("[]").has_value());
}

}  // namespace
}  // namespace ckpt::keeper
