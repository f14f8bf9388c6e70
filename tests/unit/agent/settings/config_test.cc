// SPDX-License-Identifier: Apache-2.0
#include "agent/settings/config.h"

#include <gtest/gtest.h>

namespace ckpt::agent {
namespace {

const std::string kMin = "node = 'a'\nhome = '/h'\ncoordinator = '127.0.0.1:1'\ntoken_file = '/t'\n";

std::string error_of(const std::string& text) {
  auto config = parse_config(text, "agent.toml");
  return config ? "" : config.assume_error().to_string();
}

TEST(AgentConfig, DefaultsAreThoseOfTheHeader) {
  auto config = parse_config(kMin, "agent.toml");
  ASSERT_TRUE(config) << config.assume_error().to_string();
  EXPECT_EQ(config.assume_value().peer_listen, "127.0.0.1:0");
  EXPECT_EQ(config.assume_value().pause_timeout.count(), 60000);
  EXPECT_EQ(config.assume_value().staging_mib, 128u);
  EXPECT_EQ(config.assume_value().jobs_folder(), "/h/jobs");
}

TEST(AgentConfig, ReadsSections) {
  auto config = parse_config(
      kMin + "job_environment = ['A=1']\n[timeouts]\npause_ms = 7\n[mover]\nstaging_mib = 16\n", "f");
  ASSERT_TRUE(config) << config.assume_error().to_string();
  EXPECT_EQ(config.assume_value().pause_timeout.count(), 7);
  EXPECT_EQ(config.assume_value().staging_mib, 16u);
  EXPECT_EQ(config.assume_value().job_environment, std::vector<std::string>{"A=1"});
}

TEST(AgentConfig, UnknownKeysAreRefused) {
  EXPECT_NE(error_of(kMin + "nod = 'b'\n").find("unknown key \"nod\" at line 5"), std::string::npos);
  EXPECT_NE(error_of(kMin + "[timeouts]\npause = 1\n").find("timeouts.pause"), std::string::npos);
}

TEST(AgentConfig, NamesTheKeyThatIsWrong) {
  EXPECT_NE(error_of("node = 'a'\n").find("\"home\" is required"), std::string::npos);
  EXPECT_NE(error_of(kMin + "[mover]\nstaging_mib = 1\n").find("mover.staging_mib"), std::string::npos);
  EXPECT_NE(error_of(kMin + "job_environment = ['NOTHING']\n").find("NOTHING"), std::string::npos);
  EXPECT_NE(error_of("node = [").find("agent.toml"), std::string::npos);
}

TEST(AgentConfig, ListeningBeyondLoopbackNeedsInsecure) {
  EXPECT_NE(error_of(kMin + "peer_listen = '0.0.0.0:0'\n").find("insecure"), std::string::npos);
  EXPECT_EQ(error_of(kMin + "peer_listen = '0.0.0.0:0'\ninsecure = true\n"), "");
  EXPECT_NE(error_of(kMin + "metrics_address = '0.0.0.0:9402'\n").find("insecure"), std::string::npos);
  EXPECT_EQ(error_of(kMin + "metrics_address = '0.0.0.0:9402'\ninsecure = true\n"), "");
  EXPECT_NE(error_of(kMin + "remap = 'copy'\n").find("import or own"), std::string::npos);
  EXPECT_EQ(error_of(kMin + "remap = 'own'\n"), "");
}

TEST(AgentConfig, ImagesFromOtherNodesMayLieInMemory) {
  EXPECT_EQ(parse_config(kMin, "x").value().vault_memory_folder(), "");
  const auto config = parse_config(kMin + "vault_memory = '/dev/shm/g'\nvault_memory_limit_mib = 7\n", "x");
  ASSERT_TRUE(config) << config.assume_error().to_string();
  EXPECT_EQ(config.assume_value().vault_memory_folder(), "/dev/shm/g/a");  // nodes may share it
  EXPECT_EQ(config.assume_value().vault_memory_limit_mib, 7U);
  EXPECT_NE(error_of(kMin + "vault_memory = 'shm'\n").find("absolute path"), std::string::npos);
}

TEST(AgentConfig, RackAndLabelsAreRead) {
  const Result<Config> config = parse_config(kMin + "rack = 'r7'\nlabels = ['zone=west', 'a/b.c=']\n", "x");
  ASSERT_TRUE(config) << config.assume_error().to_string();
  EXPECT_EQ(config.assume_value().rack, "r7");
  EXPECT_EQ(config.assume_value().labels, (std::vector<std::string>{"zone=west", "a/b.c="}));
  for (const char* wrong : {"zone", "=west", "zo ne=west"})
    EXPECT_NE(error_of(kMin + "labels = ['" + wrong + "']\n").find("KEY=VALUE"), std::string::npos) << wrong;
  EXPECT_NE(error_of(kMin + "rack = '" + std::string(65, 'r') + "'\n").find("64 bytes"), std::string::npos);
}

TEST(AgentConfig, CoordinatorByAddressOrByFileButNotBoth) {
  EXPECT_NE(error_of(kMin + "coordinator_file = '/f'\n"), "");
  EXPECT_EQ(error_of("node = 'a'\nhome = '/h'\ncoordinator_file = '/f'\n"), "");
  EXPECT_NE(error_of("node = 'a'\nhome = '/h'\ncoordinator = '127.0.0.1:1'\n"), "");
}

TEST(AgentConfig, VisibleGpusAreParsed) {
  EXPECT_TRUE(parse_visible_gpus(nullptr).assume_value().empty());
  const std::vector<std::uint32_t> expected{3, 1};
  EXPECT_EQ(parse_visible_gpus("3,1").assume_value(), expected);
  EXPECT_EQ(parse_visible_gpus("3,1,-1,2").assume_value(), expected);
  EXPECT_FALSE(parse_visible_gpus("GPU-1234"));
  Config config;
  EXPECT_EQ(config.machine_gpu(1), 1u);
  config.visible_gpus = expected;
  EXPECT_EQ(config.machine_gpu(0), 3u);
}

TEST(AgentConfig, NamesThatAreNoFolderNamesAreRefused) {
  for (const char* name : {"", ".", "..", "a/b", ".hidden", "a b", "ä"})
    EXPECT_FALSE(is_safe_name(name)) << name;
  EXPECT_FALSE(is_safe_name(std::string(64, 'a')));
  for (const char* name : {"a", "node-1", "gpu_07.rack"}) EXPECT_TRUE(is_safe_name(name)) << name;
}

}  // namespace
}  // namespace ckpt::agent
