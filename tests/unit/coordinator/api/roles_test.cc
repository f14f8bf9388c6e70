// SPDX-License-Identifier: Apache-2.0
// Tests of the roles that may make each call: docs/api.md, the table of routes and the coordinator agree.
#include "coordinator/requests/roles.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <tuple>

#include "coordinator/requests/authorize.h"
#include "coordinator/requests/fields.h"
#include "coordinator/requests/routes.h"
#include "libckpt/base/fd.h"
#include "tests/unit/coordinator/api/api_fixture.h"

namespace ckpt::coordinator::test {
namespace {

using Call = std::tuple<std::string, std::string, std::string>;  // method, path, role
constexpr std::array kRoles = {Role::kViewer, Role::kOperator, Role::kAdmin};

std::set<Call> documented_calls() {
  std::ifstream file(SOURCE_DIR "/docs/api.md");
  const std::regex row(R"(^\| (`(GET|POST|DELETE) /v1/.*`) \| (viewer|operator|admin) \| .*)");
  const std::regex call(R"(`(?:(GET|POST|DELETE) )?/v1/([A-Za-z/-]+)[^`]*`)");
  std::set<Call> calls;
  std::string line;
  while (std::getline(file, line)) {
    std::smatch whole;
    if (!std::regex_match(line, whole, row)) continue;
    const std::string cell = whole[1];
    for (std::sregex_iterator at(cell.begin(), cell.end(), call), end; at != end; ++at)
      calls.emplace((*at)[1].matched ? (*at)[1].str() : whole[2].str(), (*at)[2], whole[3]);
  }
  return calls;
}

std::set<std::pair<std::string, std::string>> documented_fields() {
  std::ifstream file(SOURCE_DIR "/docs/api.md");
  const std::regex row(R"(^\| `([a-z_]+)` \| (viewer|operator|admin) \| it .*)");
  std::set<std::pair<std::string, std::string>> fields;
  std::string line;
  std::smatch found;
  while (std::getline(file, line))
    if (std::regex_match(line, found, row)) fields.emplace(found[1], found[2]);
  return fields;
}

HttpRequest request_of(const Route& route, std::string body) {
  HttpRequest request;
  request.method = route.method;
  request.body = std::move(body);
  return request;
}

class RolesTest : public ApiTest {
 protected:
  std::string token(Role role) {
    const std::string name = role == Role::kAdmin ? "token" : std::string(to_text(role)) + "-token";
    std::string text = read_file(cluster_.folder() + "/coordinator/" + name, 4096).value();
    text.pop_back();
    return text;
  }
  HttpAnswer ask(const std::string& token, std::string_view method, std::string_view path,
                 std::string body = {}) {
    if (body.empty() && method == "POST") body = "{}";
    return request(cluster_.api_address(), token, std::string(method), "/v1/" + std::string(path), body);
  }
};

TEST_F(RolesTest, EachRouteIsDocumentedWithItsRole) {
  std::set<Call> routes;
  for (const Route& route : all_routes()) routes.emplace(route.method, route.path, to_text(route.min_role));
  EXPECT_EQ(routes, documented_calls());
}

TEST_F(RolesTest, EachRoleMayMakeOnlyItsPermittedCalls) {
  for (const Route& route : all_routes()) {
    EXPECT_EQ(ask("no-such-token", route.method, route.path).status, 401U);
    for (const Role role : kRoles) {
      const HttpAnswer answer = ask(token(role), route.method, route.path);
      EXPECT_NE(answer.status, 401U);
      EXPECT_EQ(answer.status == 403, role < route.min_role)
          << to_text(role) << " " << route.method << " " << route.path << ": " << answer.body;
    }
  }
}

TEST_F(RolesTest, RefusalNamesTheRequiredAndTheActualRole) {
  const HttpAnswer answer = ask(token(Role::kViewer), "POST", "cordon");
  expect_error(answer, 403, "forbidden", 5);
  EXPECT_NE(answer.body.find("needs the role operator, and yours is viewer"), std::string::npos)
      << answer.body;
}

TEST_F(RolesTest, EachFieldIsDocumentedWithItsRole) {
  std::set<std::pair<std::string, std::string>> fields;
  for (const Field& field : kFields)
    if (field.effect != Effect::kNone) fields.emplace(field.name, to_text(min_role_for(field.effect)));
  EXPECT_EQ(fields, documented_fields());
}

TEST(AuthorizeTest, EachFieldRequiresItsRoleInEachCall) {
  for (const Route& route : all_routes()) {
    for (const Field& field : kFields) {
      const std::string name(field.name);
      const HttpRequest asked = request_of(route, R"({")" + name + R"(":"/a/folder"})");
      const HttpRequest silent = request_of(route, R"({")" + name + R"(":null})");
      const Role min_role = std::max(route.min_role, min_role_for(field.effect));
      for (const Role role : kRoles) {
        EXPECT_EQ(refusal_of(asked, route, role).value().has_value(), role < min_role)
            << name << " " << to_text(role) << " " << route.path;
        EXPECT_EQ(refusal_of(silent, route, role).value().has_value(), role < route.min_role)
            << name << " " << to_text(role) << " " << route.path;
      }
    }
  }
}

TEST(AuthorizeTest, OperatorsMayNameANodeAsADestination) {
  const Route route{"POST", "jobs/JOB/suspend", Role::kOperator};
  EXPECT_FALSE(refusal_of(request_of(route, R"({"to":"node-a"})"), route, Role::kOperator).value());
  EXPECT_FALSE(refusal_of(request_of(route, ""), route, Role::kOperator).value());
  EXPECT_FALSE(refusal_of(request_of(route, "[1]"), route, Role::kOperator));
}

TEST_F(RolesTest, MoveByAnOperatorCannotStartAnotherProgram) {
  two_nodes();
  start_nodes();
  run_job();
  const HttpAnswer answer = ask(token(Role::kOperator), "POST", "jobs/train/migrate",
                                R"({"to":"node-b","exec":["/bin/sh","-c","id"]})");
  expect_error(answer, 403, "forbidden", 5);
  EXPECT_NE(answer.body.find("Field \\\"exec\\\" starts or adopts a program"), std::string::npos)
      << answer.body;
  EXPECT_EQ(ask(token(Role::kOperator), "GET", "migrations").json(), json::array());
  // The operator may request a move without another program.
  EXPECT_EQ(ask(token(Role::kOperator), "POST", "jobs/train/migrate", R"({"to":"node-b"})").status, 202U);
}

TEST_F(RolesTest, OperatorsCannotChooseAFolderForImages) {
  two_nodes();
  start_nodes();
  run_job();
  for (const char* verb : {"suspend", "snapshot", "protect"}) {
    const std::string path = std::string("jobs/train/") + verb;
    const HttpAnswer answer =
        ask(token(Role::kOperator), "POST", path, R"({"to":"/etc/cron.d","every_ms":60000})");
    EXPECT_EQ(answer.status, 403U) << verb << ": " << answer.body;
    EXPECT_NE(answer.body.find("Field \\\"to\\\" names a folder of a node"), std::string::npos)
        << answer.body;
  }
}

TEST_F(RolesTest, ViewersSeeNoCommands) {
  two_nodes();
  start_nodes();
  run_job();
  EXPECT_TRUE(ask(token(Role::kViewer), "GET", "jobs/train").json()["argv"].is_null());
  EXPECT_EQ(ask(token(Role::kOperator), "GET", "jobs/train").json()["argv"][0], "./train");
}

TEST(RoleTest, CertificateGrantsOnlyItsRole) {
  EXPECT_EQ(role_of(tls::Peer::coordinator()), Role::kAdmin);
  EXPECT_EQ(role_of(tls::Peer::client("operator")), Role::kOperator);
  EXPECT_EQ(role_of(tls::Peer::client("root")), std::nullopt);
  EXPECT_EQ(role_of(tls::Peer::node("admin")), std::nullopt);
  EXPECT_EQ(role_of(tls::Peer()), std::nullopt);
}

}  // namespace
}  // namespace ckpt::coordinator::test
