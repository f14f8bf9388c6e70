// SPDX-License-Identifier: Apache-2.0
// Compares the tables of docs/metrics.md with the metrics that a coordinator and an agent register. Names,
// kinds and labels must match in both directions.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

#include "agent/daemon/agent.h"
#include "coordinator/daemon/coordinator.h"
#include "libckpt/base/fd.h"

namespace ckpt {
namespace {

using Described = std::map<std::string, std::string>;  // maps a name to "kind: labels"

std::string signature(std::string_view kind, const std::string& labels) {
  return std::string(kind) + ": " + labels;
}

Described registered(const metrics::Registry& registry) {
  Described out;
  for (const metrics::Descriptor& d : registry.descriptors()) {
    std::string labels;
    for (const std::string& label : d.labels) labels += (labels.empty() ? "" : ",") + label;
    EXPECT_TRUE(out.emplace(d.name, signature(to_string(d.kind), labels)).second) << d.name << " twice";
    EXPECT_FALSE(d.help.empty()) << d.name << " has no help text";
    EXPECT_EQ(d.help.back(), '.') << d.name << ": " << d.help;
    EXPECT_EQ(d.kind == metrics::Kind::kCounter, d.name.ends_with("_total")) << d.name;
  }
  return out;
}

// Returns the rows (| `name` | kind | labels | text |) of the section that begins with `heading`.
Described documented(const std::string& heading) {
  const std::regex row(R"(\| `([a-z_]+)` \| (counter|gauge|histogram) \|([^|]*)\|[^|]*\|)");
  std::ifstream file(DOCUMENT);
  EXPECT_TRUE(file) << DOCUMENT;
  Described out;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) inside = line == heading;
    std::smatch match;
    if (!inside || !std::regex_match(line, match, row)) continue;
    const std::string labels = std::regex_replace(match[3].str(), std::regex("[` ]"), "");
    EXPECT_TRUE(out.emplace(match[1], signature(match[2].str(), labels)).second) << match[1] << " twice";
  }
  return out;
}

class DocumentedTest : public ::testing::Test {
 protected:
  DocumentedTest() {
    std::string pattern = ::testing::TempDir() + "/metricsXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~DocumentedTest() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(DocumentedTest, CoordinatorMetricsAreDocumented) {
  control::asio::io_context io;
  coordinator::Config config;
  config.home = folder_;
  auto made = coordinator::Coordinator::create(io, config, [](const Error&) {});
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ(registered(made.value()->metrics()), documented("## Coordinator"));
}

TEST_F(DocumentedTest, AgentMetricsAreDocumented) {
  ASSERT_TRUE(write_file_durably(folder_ + "/token", "secret\n"));
  agent::Config config;
  config.node = "node-a";
  config.home = folder_ + "/node";
  config.coordinator = "unix:" + folder_ + "/absent.sock";
  config.peer_listen = "unix:" + folder_ + "/peer.sock";
  config.token_file = folder_ + "/token";
  auto made = agent::Agent::create(config);
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ(registered(made.value()->metrics()), documented("## Agent"));
}

}  // namespace
}  // namespace ckpt
