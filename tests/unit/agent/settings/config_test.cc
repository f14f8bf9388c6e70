// SPDX-License-Identifier: Apache-2.0
#include "agent/settings/config.h"

#include <gtest/gtest.h>

namespace ckpt::agent {
namespace {

const std::string kMin = "node = 'a'\nhome = '/h'\ncoordinator = 'unix:/c'\ntoken_file = '/t'\n";

std::string error_of(const std::string& text) {
  auto config = parse_config(text, "agent.toml");
  return config ? "" : config.error().to_string();
}

TEST(AgentConfig, MissingSettingsUseTheDefaultsOfTheHeader) {
  auto config = parse_config(kMin, "agent.toml");
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->peer_listen, "unix:/h/peer.sock");
  EXPECT_EQ(config->pause_timeout.count(), 60000);
  EXPECT_EQ(config->staging_mib, 128u);
  EXPECT_EQ(config->jobs_folder(), "/h/jobs");
}

TEST(AgentConfig, SectionsAreParsed) {
  auto config = parse_config(
      kMin + "job_environment = ['A=1']\n[timeouts]\npause_ms = 7\n[mover]\nstaging_mib = 16\n", "f");
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->pause_timeout.count(), 7);
  EXPECT_EQ(config->staging_mib, 16u);
  EXPECT_EQ(config->job_environment, std::vector<std::string>{"A=1"});
}

TEST(AgentConfig, UnknownKeysAreRefused) {
  EXPECT_NE(error_of(kMin + "nod = 'b'\n").find("unknown key \"nod\" at line 5"), std::string::npos);
  EXPECT_NE(error_of(kMin + "[timeouts]\npause = 1\n").find("timeouts.pause"), std::string::npos);
}

TEST(AgentConfig, ErrorNamesTheInvalidKey) {
  EXPECT_NE(error_of("node = 'a'\n").find("\"home\" is required"), std::string::npos);
  EXPECT_NE(error_of(kMin + "[mover]\nstaging_mib = 1\n").find("mover.staging_mib"), std::string::npos);
  EXPECT_NE(error_of(kMin + "job_environment = ['NOTHING']\n").find("NOTHING"), std::string::npos);
  EXPECT_NE(error_of("node = [").find("agent.toml"), std::string::npos);
}

TEST(AgentConfig, CertificateFilesMustBeSetTogether) {
  const std::string open = kMin + "peer_listen = '0.0.0.0:0'\nmetrics_address = '0.0.0.0:9402'\n";
  const std::string whole = "[tls]\nca = '/c'\ncertificate = '/d'\nkey = '/k'\n";
  EXPECT_EQ(error_of(open + whole), "");
  EXPECT_NE(error_of(open + "[tls]\nca = '/c'\ncertificate = '/d'\n").find("tls.key"), std::string::npos);
  EXPECT_NE(error_of(open + "[tls]\nca = 'c'\ncertificate = '/d'\nkey = '/k'\n").find("absolute"),
            std::string::npos);
  EXPECT_NE(error_of(open + whole + "keys = '/k'\n").find("tls.keys"), std::string::npos);
  EXPECT_EQ(parse_config(kMin + whole, "agent.toml").value().tls.certificate, "/d");
  EXPECT_TRUE(parse_config(kMin, "agent.toml").value().tls.empty());
}

TEST(AgentConfig, TcpRequiresACertificate) {
  const std::string whole = "[tls]\nca = '/c'\ncertificate = '/d'\nkey = '/k'\n";
  for (const char* setting : {"peer_listen = '127.0.0.1:0'\n", "metrics_address = '0.0.0.0:9402'\n"}) {
    EXPECT_NE(error_of(kMin + setting).find("certificate"), std::string::npos) << setting;
    EXPECT_EQ(error_of(kMin + setting + whole), "");
  }
  const std::string by_tcp = "node = 'a'\nhome = '/h'\ncoordinator = '127.0.0.1:1'\ntoken_file = '/t'\n";
  EXPECT_NE(error_of(by_tcp).find("\"coordinator\""), std::string::npos);
  EXPECT_EQ(error_of(by_tcp + whole), "");
}

TEST(AgentConfig, RemapAcceptsOnlyItsThreeValues) {
  EXPECT_NE(error_of(kMin + "remap = 'copy'\n").find("import or own"), std::string::npos);
  EXPECT_EQ(error_of(kMin + "remap = 'own'\n"), "");
}

TEST(AgentConfig, ImagesFromOtherNodesMayBeStoredInMemory) {
  EXPECT_EQ(parse_config(kMin, "x").value().checkpoint_store_memory_folder(), "");
  const auto config = parse_config(
      kMin + "checkpoint_store_memory = '/dev/shm/g'\ncheckpoint_store_memory_limit_mib = 7\n", "x");
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->checkpoint_store_memory_folder(),
            "/dev/shm/g/a");  // nodes may share the configured folder
  EXPECT_EQ(config->checkpoint_store_memory_limit_mib, 7U);
  EXPECT_NE(error_of(kMin + "checkpoint_store_memory = 'shm'\n").find("absolute path"), std::string::npos);
}

TEST(AgentConfig, RackAndLabelsAreParsed) {
  const Result<Config> config = parse_config(kMin + "rack = 'r7'\nlabels = ['zone=west', 'a/b.c=']\n", "x");
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->rack, "r7");
  EXPECT_EQ(config->labels, (std::vector<std::string>{"zone=west", "a/b.c="}));
  for (const char* wrong : {"zone", "=west", "zo ne=west"})
    EXPECT_NE(error_of(kMin + "labels = ['" + wrong + "']\n").find("KEY=VALUE"), std::string::npos) << wrong;
  EXPECT_NE(error_of(kMin + "rack = '" + std::string(65, 'r') + "'\n").find("64 bytes"), std::string::npos);
}

TEST(AgentConfig, NetworksAreParsedInOrder) {
  const auto config =
      parse_config(kMin + "[[network]]\nname = 'fast'\ndevice = 'ib0'\ntransport = 'ucx-trusted'\n" +
                       "[[network]]\nname = 'data'\naddress = 'fd77::2'\ntransport = 'tls'\n" +
                       "[[network]]\nname = 'rdma'\ndevice = 'ib1'\ntransport = 'rdma-trusted'\n",
                   "x");
  ASSERT_TRUE(config) << config.error().to_string();
  const auto& networks = config->networks;
  ASSERT_EQ(networks.size(), 3U);
  EXPECT_EQ(networks[0].devices, std::vector<std::string>{"ib0"});
  EXPECT_EQ(networks[0].network.transport, wire::LaneTransport::kUcxTrusted);
  EXPECT_EQ(networks[1].network, wire::DataNetwork("data", "fd77::2", wire::LaneTransport::kTls));
  EXPECT_EQ(networks[2].network.transport, wire::LaneTransport::kRdmaTrusted);
}

TEST(AgentConfig, NetworkMayHaveSeveralAddressesOrDevices) {
  const auto config = parse_config(
      kMin + "[[network]]\nname = 'data'\naddresses = ['10.0.0.5', 'fd77::5']\ntransport = 'tls'\n" +
          "[[network]]\nname = 'fast'\ndevices = ['eth1', 'eth2']\ntransport = 'ucx-trusted'\n",
      "x");
  ASSERT_TRUE(config) << config.error().to_string();
  const auto& networks = config->networks;
  ASSERT_EQ(networks.size(), 2U);
  EXPECT_EQ(networks[0].network.addresses(), (std::vector<std::string>{"10.0.0.5", "fd77::5"}));
  EXPECT_EQ(networks[1].devices, (std::vector<std::string>{"eth1", "eth2"}));
}

TEST(AgentConfig, InvalidListsOfAddressesAreRefused) {
  const auto with = [](const std::string& line) {
    return error_of(kMin + "[[network]]\nname = 'data'\ntransport = 'tls'\n" + line);
  };
  const std::string several = "addresses = ['10.0.0.1', '10.1.0.1']\n";
  EXPECT_EQ(with(several), "");
  EXPECT_NE(with(several + "address = '10.0.0.1'\n").find("one of \"address\""), std::string::npos);
  EXPECT_NE(with(several + "devices = []\n").find("one of \"address\""), std::string::npos);
  EXPECT_NE(with("addresses = []\n").find("one of \"address\""), std::string::npos);
  EXPECT_NE(with("addresses = ['10.0.0.1', 'eth1']\n").find("\"eth1\" is not an IP address"),
            std::string::npos);
  std::string nine = "devices = ['eth0'";
  for (int i = 1; i < 9; ++i) nine += ", 'eth" + std::to_string(i) + "'";
  EXPECT_NE(with(nine + "]\n").find("at most 8"), std::string::npos);
}

TEST(AgentConfig, AddressUnsupportedByItsTransportIsRefused) {
  const auto with = [](const std::string& transport, const std::string& address) {
    return error_of(kMin + "[[network]]\nname = 'data'\ntransport = '" + transport + "'\naddress = '" +
                    address + "'\n");
  };
  EXPECT_EQ(with("tls", "::1"), "");
  EXPECT_EQ(with("ucx-trusted", "fd77::2"), "");
  EXPECT_NE(with("ucx-trusted", "::1").find("give 127.0.0.1"), std::string::npos);
  EXPECT_NE(with("ucx-trusted", "0::1").find("give 127.0.0.1"), std::string::npos);
  EXPECT_NE(with("rdma-trusted", "fd77::2").find("IPv4 address"), std::string::npos);
}

TEST(AgentConfig, InvalidNetworkIsRefused) {
  const auto with = [](const std::string& lines) { return error_of(kMin + "[[network]]\n" + lines); };
  const std::string data = "name = 'data'\ntransport = 'tls'\n";
  EXPECT_NE(with(data).find("one of \"address\""), std::string::npos);
  EXPECT_NE(with(data + "address = '10.0.0.1'\ndevice = 'eth0'\n").find("one of"), std::string::npos);
  EXPECT_NE(with(data + "address = 'node-a'\n").find("not an IP address"), std::string::npos);
  EXPECT_NE(with("name = '../x'\naddress = '10.0.0.1'\ntransport = 'tls'\n").find("network.name"),
            std::string::npos);
  EXPECT_NE(with("name = 'data'\naddress = '10.0.0.1'\ntransport = 'ib'\n")
                .find("tls, ucx-trusted or rdma-trusted"),
            std::string::npos);
  EXPECT_NE(with(data + "address = '10.0.0.1'\nport = 1\n").find("network.port"), std::string::npos);
  EXPECT_NE(error_of(kMin + "network = 'data'\n").find("[[network]]"), std::string::npos);
  const std::string one = "[[network]]\n" + data + "address = '10.0.0.1'\n";
  EXPECT_NE(error_of(kMin + one + one).find("two [[network]]"), std::string::npos);
}

TEST(Networks, EachNetworkResolvesToAnAddressOfThisMachine) {
  const wire::DataNetwork by_address("local", "127.0.0.1", wire::LaneTransport::kTls);
  EXPECT_EQ(resolve_networks({}).value(), std::vector{by_address});
  const auto found =
      resolve_networks({{by_address, {}}, {wire::DataNetwork("lo", "", by_address.transport), {"lo"}}});
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ((*found)[0], by_address);
  EXPECT_EQ((*found)[1].address, "127.0.0.1");
  const auto missing = resolve_networks({{wire::DataNetwork("data", "192.0.2.1", by_address.transport), {}}});
  EXPECT_NE(missing.error().message().find("Network data: no device"), std::string::npos);
  const auto no_device = resolve_networks({{wire::DataNetwork("data", "", by_address.transport), {"nope0"}}});
  EXPECT_NE(no_device.error().message().find("no device nope0"), std::string::npos);
}

TEST(Networks, EachNetworkAddressMustBeLocalAndListedOnce) {
  wire::DataNetwork several("data", "127.0.0.1", wire::LaneTransport::kTls);
  several.more_addresses = {"::1"};
  const auto found = resolve_networks({{several, {}}});
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ((*found)[0], several);
  several.more_addresses = {"192.0.2.1"};
  EXPECT_NE(resolve_networks({{several, {}}}).error().message().find("192.0.2.1"), std::string::npos);
  several.more_addresses = {"127.0.0.1"};
  EXPECT_NE(resolve_networks({{several, {}}}).error().message().find("named twice"), std::string::npos);
  const wire::DataNetwork by_device("data", "", wire::LaneTransport::kTls);
  EXPECT_NE(resolve_networks({{by_device, {"lo", "lo"}}}).error().message().find("named twice"),
            std::string::npos);
}

TEST(AgentConfig, MoverPortRangeIsParsed) {
  const auto with = [](const std::string& lines) { return error_of(kMin + lines); };
  const auto config =
      parse_config(kMin + "checkpoint_store_port = 7072\n[mover]\nports = '7100-7199'\n", "x");
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->mover_ports.first, 7100);
  EXPECT_EQ(config->mover_ports.last, 7199);
  EXPECT_EQ(config->checkpoint_store_port, 7072);
  EXPECT_EQ(parse_config(kMin, "x").value().mover_ports.first, 0);
  for (const char* wrong : {"7100", "7199-7100", "7100-7101", "80-200", "7100-70000", "7100-7199,", "a-b",
                            "-7100", "7100 - 7199"})
    EXPECT_NE(with(std::string("[mover]\nports = '") + wrong + "'\n").find("\"mover.ports\" must be"),
              std::string::npos)
        << wrong;
  const std::string range = "[mover]\nports = '7000-7099'\n";
  const std::string tls = "[tls]\nca = '/c'\ncertificate = '/d'\nkey = '/k'\n";
  EXPECT_NE(
      with("checkpoint_store_port = 7072\n" + range).find("\"checkpoint_store_port\" must not be one of"),
      std::string::npos);
  EXPECT_NE(with("peer_listen = '10.0.0.2:7071'\n" + range + tls).find("\"peer_listen\" must not be one of"),
            std::string::npos);
}

TEST(AgentConfig, CoordinatorAddressAndCoordinatorFileAreMutuallyExclusive) {
  EXPECT_NE(error_of(kMin + "coordinator_file = '/f'\n"), "");
  EXPECT_EQ(error_of("node = 'a'\nhome = '/h'\ncoordinator_file = '/f'\n"), "");
  EXPECT_NE(error_of("node = 'a'\nhome = '/h'\ncoordinator = 'unix:/c'\n"), "");
}

TEST(AgentConfig, VisibleGpusAreParsed) {
  EXPECT_TRUE(parse_visible_gpus(nullptr)->empty());
  const std::vector<std::uint32_t> expected{3, 1};
  EXPECT_EQ(*parse_visible_gpus("3,1"), expected);
  EXPECT_EQ(*parse_visible_gpus("3,1,-1,2"), expected);
  EXPECT_FALSE(parse_visible_gpus("GPU-1234"));
  Config config;
  EXPECT_EQ(config.machine_gpu(1), 1u);
  config.visible_gpus = expected;
  EXPECT_EQ(config.machine_gpu(0), 3u);
}

TEST(AgentConfig, NamesUnsafeAsFolderNamesAreRefused) {
  for (const char* name : {"", ".", "..", "a/b", ".hidden", "a b", "ä"})
    EXPECT_FALSE(is_safe_name(name)) << name;
  EXPECT_FALSE(is_safe_name(std::string(64, 'a')));
  for (const char* name : {"a", "node-1", "gpu_07.rack"}) EXPECT_TRUE(is_safe_name(name)) << name;
}

}  // namespace
}  // namespace ckpt::agent
