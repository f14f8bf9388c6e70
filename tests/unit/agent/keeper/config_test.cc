// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/settings/config.h"

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
          {"gid", 1001},
          {"way", "transparent"},
          {"preload", "/lib/shim.so"},
          {"gpu_memory_quota", 12},
          {"init", "/bin/init"},
          {"restore", {{"command", {"/bin/criu", "restore"}}, {"pid_file", "/tmp/pid"}}}};
}

TEST(KeeperConfig, EveryFieldIsParsed) {
  const Result<Config> config = parse_config(good().dump());
  ASSERT_TRUE(config.has_value()) << config.error().to_string();
  const Config& value = *config;
  EXPECT_EQ(value.job, "j-1");
  EXPECT_EQ(value.incarnation, 3u);
  EXPECT_EQ(value.role, local::Role::kStandby);
  EXPECT_EQ(value.argv, (std::vector<std::string>{"/bin/true", "a b"}));
  EXPECT_EQ(value.env.at("A"), "1=2");
  EXPECT_EQ(value.uid, 1000u);
  EXPECT_EQ(value.gid, 1001u);
  EXPECT_EQ(value.mode, MigrationMode::kTransparent);
  EXPECT_EQ(value.preload, "/lib/shim.so");
  EXPECT_EQ(value.gpu_memory_quota, 12u);
  EXPECT_EQ(value.init, "/bin/init");
  ASSERT_TRUE(value.restore);
  EXPECT_EQ(value.restore->command, (std::vector<std::string>{"/bin/criu", "restore"}));
  EXPECT_EQ(value.restore->pid_file, "/tmp/pid");
}

TEST(KeeperConfig, NamespacesNeedAnInit) {
  Json document = good();
  EXPECT_FALSE(parse_config(document.dump())->namespaces);
  document["namespaces"] = {{"private_tmp", true}};
  const Result<Config> config = parse_config(document.dump());
  ASSERT_TRUE(config.has_value()) << config.error().to_string();
  ASSERT_TRUE(config->namespaces);
  EXPECT_TRUE(config->namespaces->private_tmp);
  document["namespaces"] = {{"private_tmp", 1}};
  EXPECT_FALSE(parse_config(document.dump()));
  document["namespaces"] = {{"private_tmp", true}};
  document.erase("init");
  EXPECT_FALSE(parse_config(document.dump()));
}

TEST(KeeperConfig, ModeDefaultsToCooperative) {
  Json document = good();
  for (const char* key : {"way", "preload", "gpu_memory_quota", "init", "restore"}) document.erase(key);
  const Result<Config> config = parse_config(document.dump());
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->mode, MigrationMode::kCooperative);
  EXPECT_TRUE(config->preload.empty());
  EXPECT_FALSE(config->restore);
}

// An agent of 2026-11 wrote these files. Such an agent may start the keeper of a later version.
TEST(KeeperConfig, RecordedFilesAreRead) {
  const Result<Config> adopted = parse_config(
      R"({"adopt":{"pid":4711,"start_ticks":123},"argv":["python3","a.py"],"cwd":"/home","env":{"A":"b"},
"gang":false,"gid":1001,"incarnation":1,"job":"j1","name":"train","ranks":1,"role":"fresh","uid":1000,
"way":"adopted"})");
  ASSERT_TRUE(adopted) << adopted.error().to_string();
  EXPECT_TRUE(adopted->adopted) << "the program would be started a second time";
  ASSERT_TRUE(adopted->adopt);
  EXPECT_EQ(adopted->adopt->pid, 4711);

  const Result<Config> transparent = parse_config(
      R"({"argv":["python3","a.py"],"cwd":"/home","env":{"A":"b"},"gang":false,"gid":1001,
"gpu_memory_quota":0,"incarnation":1,"init":"/bin/init","job":"j1","name":"train","preload":"/lib/shim.so",
"ranks":1,"role":"fresh","uid":1000,"way":"transparent"})");
  ASSERT_TRUE(transparent) << transparent.error().to_string();
  EXPECT_EQ(transparent->mode, MigrationMode::kTransparent);
}

void expect_field_refused(const char* key, const Json& value) {
  Json document = good();
  document[key] = value;
  const Result<Config> config = parse_config(document.dump());
  ASSERT_FALSE(config.has_value()) << key << " " << value;
  EXPECT_NE(config.error().to_string().find(key), std::string::npos);
}

TEST(KeeperConfig, FieldsOfTheTransparentModeAreChecked) {
  expect_field_refused("way", "other");
  expect_field_refused("preload", "shim.so");
  expect_field_refused("preload", "/a:/b");
  expect_field_refused("gpu_memory_quota", -1);
  expect_field_refused("init", 3);
  expect_field_refused("restore", "criu");
  expect_field_refused("restore", {{"command", {"/bin/criu"}}});
  Json document = good();
  document["way"] = "cooperative";
  EXPECT_FALSE(parse_config(document.dump()).has_value()) << "only transparent mode restores";
}

void expect_refused(const Json& document, const std::string& word) {
  const Result<Config> config = parse_config(document.dump());
  ASSERT_FALSE(config.has_value()) << word;
  EXPECT_NE(config.error().message().find(word), std::string::npos) << config.error().message();
}

TEST(KeeperConfig, ErrorNamesTheInvalidField) {
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
