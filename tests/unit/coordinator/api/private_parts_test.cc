// SPDX-License-Identifier: Apache-2.0
// Tests that commands and output of jobs are shown only to roles that may see them. They cover every read
// call in the table of routes.
#include <regex>

#include "coordinator/requests/routes.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/private_text.h"
#include "tests/unit/coordinator/api/api_fixture.h"

namespace ckpt::coordinator::test {
namespace {

constexpr const char* kCommandSecret = "command-canary";
constexpr const char* kOutputSecret = "output-canary";

// Returns the paths that a call may be made with. Capital words in the route are replaced by existing names.
std::vector<std::string> paths_of(const Route& route, const std::vector<std::string>& jobs,
                                  const std::vector<std::string>& ids) {
  const std::string path(route.path);
  std::vector<std::string> paths;
  const auto with = [&](const char* word, const std::vector<std::string>& names) {
    for (const std::string& name : names) paths.push_back(std::regex_replace(path, std::regex(word), name));
  };
  if (path.find("JOB") != std::string::npos)
    with("JOB", jobs);
  else if (path.find("ID") != std::string::npos)
    with("ID", ids);
  else
    paths.push_back(path);
  return paths;
}

class PrivatePartsTest : public ApiTest {
 protected:
  std::string token(const std::string& file) {
    std::string text = read_file(cluster_.folder() + "/coordinator/" + file, 4096).value();
    text.pop_back();
    return text;
  }
  // Creates a job with a secret in its command, a move to another program whose standby printed a secret, and
  // a start that failed.
  void make_secrets() {
    two_nodes();
    b_->instead = [this](const wire::CommitMessage& m) {
      if (!std::holds_alternative<wire::Prepare>(m.body)) return false;
      const std::string said = mark_private(PrivatePart::kOutput, kOutputSecret);
      b_->send_commit(
          m, wire::Role::kTarget, wire::Role::kCoordinator,
          wire::Refused(wire::Reason(ErrorCode::kRefused, "The standby ended; its last output: " + said)));
      return true;
    };
    start_nodes();
    const std::string secret = kCommandSecret;
    const auto run = [&](const std::string& name, const std::string& node) {
      return cluster_.post("/v1/jobs", R"({"argv":["./)" + secret + R"(","--key",")" + secret +
                                           R"("],"cwd":"/)" + secret + R"(","env":{"KEY":")" + secret +
                                           R"("},"node":")" + node + R"(","name":")" + name + "\"}");
    };
    ASSERT_EQ(run("train", "node-a").status, 201U);
    const auto moving =
        cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b","exec":["./next",")" + secret + "\"]}");
    ASSERT_EQ(moving.status, 202U) << moving.body;
    migration_ = moving.json()["id"];
    ASSERT_NE(finished(migration_)["error"].get<std::string>().find(kOutputSecret), std::string::npos);
    b_->post([this] {
      b_->refuse_starts = true;
      b_->refused_program_status = 127;
    });
    ASSERT_EQ(run("missing", "node-b").status, 409U);
  }
  // Returns all answers that a reader with `token` receives.
  std::string all_answers(const std::string& token) {
    std::string told;
    for (const Route& route : all_routes()) {
      if (route.method != "GET" || route.path == "backup") continue;
      for (const std::string& path : paths_of(route, {"train", "missing"}, {migration_, "t1", "d1"}))
        for (const char* query : {"?timeout_ms=0&follow_ms=0", "?limit=100&timeout_ms=0&follow_ms=0"})
          told += path + ": " +
                  request(cluster_.api_address(), token, "GET", "/v1/" + path + query, "").body + "\n";
    }
    return told;
  }
  static bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  }
  std::string migration_;
};

TEST_F(PrivatePartsTest, NoCallShowsAReaderMoreThanTheReaderRoleAllows) {
  make_secrets();
  const std::string viewed = all_answers(token("viewer-token"));
  EXPECT_FALSE(has(viewed, kCommandSecret)) << viewed;
  EXPECT_FALSE(has(viewed, kOutputSecret)) << viewed;
  EXPECT_TRUE(has(viewed, "its last output: (shown to the role admin)")) << viewed;
  const std::string operated = all_answers(token("operator-token"));
  EXPECT_TRUE(has(operated, kCommandSecret));
  EXPECT_FALSE(has(operated, kOutputSecret)) << operated;
  const std::string administered = all_answers(token("token"));
  EXPECT_TRUE(has(administered, kCommandSecret));
  EXPECT_TRUE(has(administered, kOutputSecret));
  for (const std::string& told : {viewed, operated, administered})
    EXPECT_FALSE(has(told, kCommandMark) || has(told, kOutputMark) || has(told, kPrivateEndMark));
}

}  // namespace
}  // namespace ckpt::coordinator::test
