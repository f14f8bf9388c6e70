// SPDX-License-Identifier: Apache-2.0
// Tests that the daemons' own parsers read the files that `cluster init` and `node join` write.
#include "tools/gpumigrate/client/site_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "agent/settings/config.h"
#include "coordinator/settings/config.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/random.h"
#include "tests/unit/tools/gpumigrate/run_command.h"

namespace ckpt::cli {
namespace {

Result<agent::Config> agent_reads(const NodeSite& site) {
  return agent::parse_config(node_settings(site), "agent.toml");
}

TEST(SiteFiles, AnAgentStartsWithTheSettingsWrittenByJoin) {
  const auto read =
      agent_reads({"node-a", "/var/lib/gpumigrate/agent", "10.0.0.1:7070", "10.0.0.2", "/etc/gpumigrate"});
  ASSERT_TRUE(read) << read.error().to_string();
  const agent::Config& config = *read;
  EXPECT_EQ(config.node, "node-a");
  EXPECT_EQ(config.home, "/var/lib/gpumigrate/agent");
  EXPECT_EQ(config.coordinator, "10.0.0.1:7070");
  EXPECT_EQ(config.peer_listen, "10.0.0.2:7071");
  EXPECT_EQ(config.metrics_address, "10.0.0.2:9402");
  EXPECT_EQ(config.checkpoint_store_port, 7072);
  EXPECT_EQ(config.mover_ports.first, 7100);
  EXPECT_EQ(config.mover_ports.last, 7199);
  EXPECT_EQ(config.tls, (tls::CertFiles{"/etc/gpumigrate/ca.pem", "/etc/gpumigrate/node.pem",
                                        "/etc/gpumigrate/node.key"}));
  ASSERT_EQ(config.networks.size(), 1U);
  EXPECT_EQ(config.networks.front().network.address, "10.0.0.2");
}

TEST(SiteFiles, AnIpv6AddressGetsBrackets) {
  const auto read = agent_reads({"node-a", "/h", "[fd77::1]:7070", "fd77::2", "/etc/\"quoted\""});
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->peer_listen, "[fd77::2]:7071");
  EXPECT_EQ(read->networks.front().network.address, "fd77::2");
}

TEST(SiteFiles, ACoordinatorStartsWithTheSettingsWrittenByInit) {
  const CoordinatorSite site{"/h", "/h/tls", {"head.example", "10.0.0.1", "10.1.0.1"}};
  EXPECT_TRUE(is_reachable(site));
  const auto read = coordinator::parse_config(coordinator_settings(site), "coordinator.toml");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->home, "/h");
  EXPECT_EQ(read->api_address, "10.0.0.1:7060");
  EXPECT_EQ(read->agent_address, "10.0.0.1:7070");
  EXPECT_EQ(read->certificate_authority, "/h/tls");
}

TEST(SiteFiles, ACoordinatorWithoutAnAddressServesOnlyItsMachine) {
  const CoordinatorSite site{"/h", "/h/tls", {"head.example"}};
  EXPECT_FALSE(is_reachable(site));
  const auto read = coordinator::parse_config(coordinator_settings(site), "coordinator.toml");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->api_address, "");
}

TEST(SiteFiles, AnAddressMustBelongToThisMachine) {
  EXPECT_TRUE(has_address("127.0.0.1"));
  for (const char* wrong : {"", "head.example", "0.0.0.0", "::", "224.0.0.1", "192.0.2.1", "10.0.0.2/24"}) {
    const auto checked = has_address(wrong);
    ASSERT_FALSE(checked) << wrong;
    EXPECT_EQ(checked.error().code(), ErrorCode::kInvalidArgument) << wrong;
  }
}

TEST(SiteFiles, AWildcardAddressIsReplacedByTheAddressOfTheToken) {
  EXPECT_EQ(reachable_address("0.0.0.0:7070", "https://10.0.0.1:7060"), "10.0.0.1:7070");
  EXPECT_EQ(reachable_address("[::]:7070", "https://[fd77::1]:7060"), "[fd77::1]:7070");
  EXPECT_EQ(reachable_address("10.0.0.9:7070", "https://10.0.0.1:7060"), "10.0.0.9:7070");
  EXPECT_EQ(reachable_address("unix:/a:b", "https://10.0.0.1:7060"), "unix:/a:b");
}

class InitTest : public ::testing::Test {
 protected:
  InitTest() : home_(std::filesystem::temp_directory_path() / ("gm-site-" + random_hex(8).value())) {}
  ~InitTest() override { std::filesystem::remove_all(home_); }
  [[nodiscard]] std::string text(const std::string& file) const {
    return read_file(home_ / file, 1 << 16).value();
  }
  std::filesystem::path home_;
};

TEST_F(InitTest, InitWritesTheCoordinatorSettingsOnceAndNamesTheNextStep) {
  const std::string out = home_ / "etc";
  const std::vector<std::string> init = {"cluster", "init", "--host", "10.0.0.1", "--out", out};
  const Ended made = run(home_, init);
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_TRUE(has(made.out, "\nWrote " + out + "/coordinator.toml\n")) << made.out;
  EXPECT_TRUE(has(made.out, "\nNext: gpumigrate-coordinator --config " + out + "/coordinator.toml"))
      << made.out;
  EXPECT_TRUE(has(made.out, "gpumigrate node token NODE")) << made.out;
  const auto read = coordinator::parse_config(text("etc/coordinator.toml"), "coordinator.toml");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->home, home_.string());
  ASSERT_TRUE(write_file_durably(out + "/coordinator.toml", "home = '/mine'\n"));
  EXPECT_TRUE(has(run(home_, init).out, "\nKept " + out + "/coordinator.toml\n"));
  EXPECT_EQ(text("etc/coordinator.toml"), "home = '/mine'\n");
}

TEST_F(InitTest, InitReportsTheMissingAddress) {
  EXPECT_TRUE(has(run(home_, {"cluster", "init"}).out, "--host"));
}

TEST_F(InitTest, JoinRefusesAnAddressBeforeTheTokenIsUsed) {
  ASSERT_EQ(run(home_, {"cluster", "init"}).code, 0);
  const Ended token = run(home_, {"node", "token", "node-b", "--url", "https://127.0.0.1:1"});
  ASSERT_TRUE(write_file_durably(home_ / "token", token.out));
  const Ended refused =
      run(home_, {"node", "join", home_ / "token", "--address", "192.0.2.1", "--out", home_ / "node"});
  EXPECT_EQ(refused.code, 64);
  EXPECT_TRUE(has(refused.err, "does not have the address 192.0.2.1")) << refused.err;
}

}  // namespace
}  // namespace ckpt::cli
