// SPDX-License-Identifier: Apache-2.0
// Tests documents and completions that are generated from the command's definition.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <regex>

#include "tests/unit/tools/gpumigrate/run_command.h"

namespace ckpt::cli {
namespace {

std::string text_at(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Returns the candidates without their meanings.
std::vector<std::string> completed(const std::string& home, std::vector<std::string> words) {
  words.insert(words.begin(), {"__complete", "--"});
  const Ended ended = run(home, words);
  EXPECT_EQ(ended.code, 0) << ended.err;
  std::vector<std::string> candidates = lines_of(ended.out);
  for (std::string& line : candidates) line = line.substr(0, line.find('\t'));
  return candidates;
}

using Words = std::vector<std::string>;

TEST(Manual, ManualPagesMatchTheProgram) {
  const std::string docs = std::string(GPUMIGRATE_SOURCE) + "/docs/command/";
  EXPECT_EQ(run("/nonexistent", {"__manual", "cli"}).out, text_at(docs + "cli.md")) << "tools/write-cli-docs";
  EXPECT_EQ(run("/nonexistent", {"__manual", "cheatsheet"}).out, text_at(docs + "cheatsheet.md"))
      << "tools/write-cli-docs";
}

TEST(Manual, TheCheatsheetFitsOnePage) {
  EXPECT_LE(lines_of(run("/nonexistent", {"__manual", "cheatsheet"}).out).size(), 66U);
}

TEST(Manual, EachCommandHasAManPage) {
  char folder[] = "/tmp/gm-man-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  EXPECT_EQ(run("/nonexistent", {"__manual", "man", folder}).code, 0);
  for (const char* name :
       {"gpumigrate", "gpumigrate-migrate", "gpumigrate-local-up", "gpumigrate-images-rm"}) {
    const std::string page = text_at(std::string(folder) + "/" + name + ".1");
    EXPECT_EQ(page.find(std::string(".TH ") + name + " 1 "), 0U) << name;
    EXPECT_NE(page.find(".SH SYNOPSIS"), std::string::npos) << name;
  }
  EXPECT_NE(text_at(std::string(folder) + "/gpumigrate-migrate.1").find("\\-\\-max\\-downtime TIME"),
            std::string::npos);
  EXPECT_EQ(text_at(std::string(folder) + "/gpumigrate-__complete.1"), "");
  EXPECT_EQ(run("/nonexistent", {"__manual", "man", "/dev/null/x"}).code, 1);
}

TEST(Completion, CommandsOptionsAndValuesAreCompleted) {
  EXPECT_EQ(completed("/nonexistent", {"mig"}), (Words{"migrate", "migrations"}));
  EXPECT_EQ(completed("/nonexistent", {"local", ""}), (Words{"up", "down", "status"}));
  EXPECT_EQ(completed("/nonexistent", {"migrate", "--max"}), (Words{"--max-downtime", "--max-rounds"}));
  EXPECT_EQ(completed("/nonexistent", {"migrate", "j", "--codec", "r"}), (Words{"raw"}));
  EXPECT_EQ(completed("/nonexistent", {"migrate", "j", "--codec=p"}), (Words{"--codec=planes"}));
  EXPECT_EQ(completed("/nonexistent", {"set", "m1", "b"}), (Words{"bandwidth"}));
  EXPECT_EQ(completed("/nonexistent", {"backup", "show", ""}), (Words{":file"}));
  EXPECT_EQ(completed("/nonexistent", {"run", "--", "./t"}), (Words{":file"}));
  EXPECT_EQ(completed("/nonexistent", {"jobs", "--outp"}), (Words{"--output"}));
  EXPECT_EQ(completed("/nonexistent", {"frobnicate", ""}).size(), completed("/nonexistent", {""}).size());
}

TEST(Completion, ClusterNamesAreCompleted) {
  FakeCoordinator coordinator([](const FakeRequest& request) {
    if (request.target == "/v1/jobs")
      return json(
          R"([{"id":"j1","name":"train","state":"running"},{"id":"j2","name":"old","state":"exited"},)"
          R"({"id":"j3","name":"a\u001b[2J","state":"running"}])");
    if (request.target == "/v1/nodes") return json(R"([{"name":"node-a"},{"name":"node-b"}])");
    return refusal(404, "not_found", "no such path", 5);
  });
  EXPECT_EQ(completed(coordinator.home(), {"migrate", "t"}), (Words{"train"}));
  EXPECT_EQ(completed(coordinator.home(), {"migrate", "train", "--to", ""}), (Words{"node-a", "node-b"}));
  EXPECT_EQ(completed(coordinator.home(), {"migrate", "--to=node-b", ""}).front(), "train");
  EXPECT_EQ(completed(coordinator.home(), {"drain", "node"}), (Words{"node-a", "node-b"}));
  EXPECT_EQ(completed(coordinator.home(), {"watch", ""}), Words{});
  EXPECT_EQ(run(coordinator.home(), {"__complete", "--", "stop", ""}).out.find('\x1b'), std::string::npos);
}

TEST(Completion, ASilentCoordinatorGivesNoNames) {
  FakeCoordinator coordinator([](const FakeRequest&) { return FakeAnswer{.silent = true}; });
  EXPECT_EQ(completed(coordinator.home(), {"stop", ""}), Words{});
}

TEST(Completion, EachShellHasACompletionScript) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Ended ended = run("/nonexistent", {"completion", shell});
    EXPECT_EQ(ended.code, 0);
    EXPECT_NE(ended.out.find("__complete"), std::string::npos) << shell;
  }
  EXPECT_EQ(run("/nonexistent", {"completion", "csh"}).code, 64);
}

}  // namespace
}  // namespace ckpt::cli
