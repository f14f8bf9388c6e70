// SPDX-License-Identifier: Apache-2.0
// Tests `cluster init`, `node certificate`, and the files with the coordinator's address and credentials.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "libckpt/base/fd.h"
#include "libckpt/base/random.h"
#include "libckpt/net/ca/request.h"
#include "tests/unit/tools/gpumigrate/run_command.h"
#include "tools/gpumigrate/client/access.h"
#include "tools/gpumigrate/client/join_token.h"

namespace ckpt::cli {
namespace {

class CertificatesTest : public ::testing::Test {
 protected:
  CertificatesTest() : home_(std::filesystem::temp_directory_path() / ("gm-cli-" + random_hex(8).value())) {
    std::filesystem::create_directories(home_ / "coordinator");
  }
  ~CertificatesTest() override { std::filesystem::remove_all(home_); }
  [[nodiscard]] std::string path(const std::string& name) const { return home_ / name; }
  void write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(write_file_durably(path(name), text));
  }
  [[nodiscard]] mode_t mode(const std::string& name) const {
    struct stat info {};
    EXPECT_EQ(::stat(path(name).c_str(), &info), 0) << name;
    return info.st_mode & 0777U;
  }
  Result<std::shared_ptr<tls::Identity>> identity(const std::string& folder, const std::string& name) {
    const std::string at = path(folder) + "/";
    return tls::Identity::load({at + "ca.pem", at + name + ".pem", at + name + ".key"});
  }
  std::filesystem::path home_;
};

TEST_F(CertificatesTest, AClusterGetsItsAuthorityAndTwoCertificates) {
  const Ended made = run(home_, {"cluster", "init", "--host", "10.0.0.1", "--host", "head.example"});
  EXPECT_EQ(made.code, 0) << made.err;
  for (const char* key : {"tls/ca.key", "tls/coordinator.key", "tls/admin.key"}) EXPECT_EQ(mode(key), 0600U);
  EXPECT_EQ(mode("tls"), 0700U);
  EXPECT_EQ(identity("tls", "coordinator").value()->subject(), tls::Peer::coordinator());
  EXPECT_EQ(identity("tls", "admin").value()->subject(), tls::Peer::client("admin"));
  const std::string authority = read_file(path("tls/ca.pem"), 1 << 16).value();
  const std::string before = read_file(path("tls/coordinator.pem"), 1 << 16).value();
  EXPECT_TRUE(has(run(home_, {"cluster", "init"}).out, "Kept the authority"));
  EXPECT_EQ(read_file(path("tls/ca.pem"), 1 << 16).value(), authority);
  EXPECT_NE(read_file(path("tls/coordinator.pem"), 1 << 16).value(), before);
}

TEST_F(CertificatesTest, ANodeGetsTheFilesNamedInItsSettings) {
  ASSERT_EQ(run(home_, {"cluster", "init", "--folder", path("authority")}).code, 0);
  const Ended made = run(home_, {"node", "certificate", "node-a", "--folder", path("authority"), "--out",
                                 path("for-a"), "-o", "json"});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(Json::parse(made.out)["node"], "node-a");
  EXPECT_EQ(identity("for-a", "node").value()->subject(), tls::Peer::node("node-a"));
  EXPECT_EQ(mode("for-a/node.key"), 0600U);
  EXPECT_FALSE(std::filesystem::exists(path("for-a/ca.key")));
}

TEST_F(CertificatesTest, AClientFolderIsUsableAsAHomeOnAnyMachine) {
  ASSERT_EQ(run(home_, {"cluster", "init"}).code, 0);
  const Ended made = run(home_, {"cluster", "certificate", "--role", "operator", "--url",
                                 "https://10.0.0.1:7060", "--out", path("on-call")});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(identity("on-call", "client").value()->subject(), tls::Peer::client("operator"));
  EXPECT_EQ(mode("on-call/client.key"), 0600U);
  std::filesystem::rename(home_ / "on-call", home_ / "copied");
  const Access access = find_access(path("copied")).value();
  EXPECT_EQ(access.port, 7060);
  EXPECT_EQ(access.token, "");
  EXPECT_EQ(access.files.key, path("copied/client.key"));
  EXPECT_TRUE(tls::Identity::load(access.files));
}

TEST_F(CertificatesTest, AClientFolderRequiresAnAddressWithCertificates) {
  ASSERT_EQ(run(home_, {"cluster", "init"}).code, 0);
  EXPECT_TRUE(has(run(home_, {"cluster", "certificate", "--out", path("out")}).err, "--url"));
  EXPECT_TRUE(
      has(run(home_, {"cluster", "certificate", "--out", path("out"), "--url", "http://10.0.0.1:1"}).err,
          "https://"));
  EXPECT_NE(run(home_, {"cluster", "certificate", "--role", "root", "--out", path("out")}).code, 0);
}

TEST_F(CertificatesTest, AJoinTokenContainsTheAddressAndTheCertificates) {
  ASSERT_EQ(run(home_, {"cluster", "init"}).code, 0);
  const Ended made = run(home_, {"node", "token", "node-b", "--url", "https://10.0.0.1:7060"});
  ASSERT_EQ(made.code, 0) << made.err;
  const JoinToken token = parse_join_token(made.out).value();
  EXPECT_EQ(token.url, "https://10.0.0.1:7060");
  EXPECT_EQ(token.ca, read_file(path("tls/ca.pem"), 1 << 16).value());
  const tls::Peer peer = tls::peer_with_key(token.own.certificate, token.own.key).value();
  EXPECT_EQ(peer.kind, tls::Peer::Kind::kJoiner);
  EXPECT_TRUE(peer.name.ends_with(".node-b")) << peer.name;
}

TEST_F(CertificatesTest, ATextThatIsNotAJoinTokenIsRefused) {
  ASSERT_EQ(run(home_, {"cluster", "init"}).code, 0);
  const std::string good = run(home_, {"node", "token", "node-b", "--url", "https://10.0.0.1:7060"}).out;
  ASSERT_TRUE(parse_join_token(good));
  for (const std::string& bad : {std::string(), std::string("gmjoin1"), "x" + good, good + ",AAAA",
                                 good.substr(0, good.rfind(',') + 1), good + std::string(1 << 20, 'A')})
    EXPECT_FALSE(parse_join_token(bad)) << bad.substr(0, 40);
  write("token", "gmjoin1,https://10.0.0.1:7060,AAAA,AAAA,AAAA");
  const Ended refused =
      run(home_, {"node", "join", path("token"), "--address", "10.0.0.2", "--out", path("node")});
  EXPECT_NE(refused.code, 0);
  EXPECT_FALSE(std::filesystem::exists(path("node/joining"))) << "the token's key must be removed";
  EXPECT_FALSE(std::filesystem::exists(path("node/node.pem")));
}

TEST_F(CertificatesTest, InvalidRequestsAreRefused) {
  EXPECT_NE(run(home_, {"node", "certificate", "node-a", "--out", path("out")}).code, 0) << "no authority";
  ASSERT_EQ(run(home_, {"cluster", "init"}).code, 0);
  EXPECT_NE(run(home_, {"cluster", "init", "--host", "a,DNS:b"}).code, 0);
  EXPECT_NE(run(home_, {"node", "certificate", "a,b", "--out", path("out")}).code, 0);
  ASSERT_EQ(::chmod(path("tls/ca.key").c_str(), 0640), 0);
  EXPECT_TRUE(has(run(home_, {"node", "certificate", "node-a", "--out", path("out")}).err, "chmod 600"));
  std::filesystem::remove(path("tls/ca.key"));
  EXPECT_NE(run(home_, {"cluster", "init"}).code, 0) << "half an authority is not replaced";
}

TEST_F(CertificatesTest, FileOfTheCoordinatorProvidesItsAddressAndCredentials) {
  write("token", "secret\n");
  write("coordinator/api.json", R"({"url": "https://[fd77::1]:7060", "token_file": ")" + path("token") +
                                    R"(", "ca": "/c", "certificate": "/d", "key": "/k"})");
  const Access access = find_access(home_).value();
  EXPECT_EQ(access.host, "fd77::1");
  EXPECT_EQ(access.port, 7060);
  EXPECT_EQ(access.token, "secret");
  EXPECT_EQ(access.files, (tls::CertFiles{"/c", "/d", "/k"}));
}

TEST_F(CertificatesTest, FileOfTheClientTakesPrecedence) {
  write("token", "secret\n");
  write("coordinator/api.json", R"({"url": "http://127.0.0.1:1", "token_file": "/absent"})");
  const std::string rest =
      "ca = '/c'\ncertificate = '/d'\nkey = '/k'\ntoken_file = '" + path("token") + "'\n";
  write("client.toml", "url = 'https://10.0.0.1:7060'\n" + rest);
  EXPECT_EQ(find_access(home_).value().host, "10.0.0.1");
  write("client.toml", "url = 'http://10.0.0.1:7060'\n" + rest);
  EXPECT_TRUE(has(find_access(home_).error().to_string(), "https://"));
  write("client.toml", "url = 'http://127.0.0.1:7060'\n" + rest);
  EXPECT_TRUE(has(find_access(home_).error().to_string(), "https://"));
  write("client.toml", "url = 'https://10.0.0.1:7060'\nurls = ''\n" + rest);
  EXPECT_TRUE(has(find_access(home_).error().to_string(), "urls"));
  write("client.toml", "url = 'https://10.0.0.1'\n" + rest);
  EXPECT_FALSE(find_access(home_));
  write("client.toml", "url = [");
  EXPECT_TRUE(has(find_access(home_).error().to_string(), "client.toml"));
}

TEST_F(CertificatesTest, AClientWithoutACertificateDoesNotConnect) {
  write("token", "secret\n");
  write("client.toml", "url = 'https://127.0.0.1:1'\ntoken_file = '" + path("token") + "'\n");
  EXPECT_TRUE(has(run(home_, {"jobs"}).err, "No certificate is specified"));
}

}  // namespace
}  // namespace ckpt::cli
