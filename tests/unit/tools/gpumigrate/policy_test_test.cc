// SPDX-License-Identifier: Apache-2.0
// Tests `policy test` without a coordinator, with a user's table, and with wrong input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tools/gpumigrate/client/context.h"
#include "tools/gpumigrate/program.h"

namespace ckpt::cli {
namespace {

using testing::HasSubstr;

struct Ran {
  int code = 0;
  std::string out;
  std::string err;
  [[nodiscard]] Json json() const { return Json::parse(out); }
};

Ran run(std::vector<std::string> arguments) {
  std::ostringstream out;
  std::ostringstream err;
  Context context{out, err, false, false, CoordinatorClient("/nowhere")};
  arguments.insert(arguments.begin(), {"policy", "test"});
  const int code = run_program(arguments, context);
  return {code, out.str(), err.str()};
}

TEST(PolicyTest, DecisionIsShownWithItsReason) {
  const Ran ran = run({"--xid", "94", "--victim"});
  EXPECT_EQ(ran.code, kDone);
  EXPECT_THAT(
      ran.out,
      HasSubstr("this process     restore  Xid 94 (ROBUST_CHANNEL_CONTAINED_ERROR): its context is lost"));
  EXPECT_THAT(ran.out, HasSubstr("another process  live"));
  EXPECT_THAT(ran.out, HasSubstr("cordon yes"));
}

TEST(PolicyTest, TheDecisionIsPrintedAsJson) {
  const Json answer = run({"--xid", "63", "--recovery", "2", "-o", "json"}).json();
  EXPECT_EQ(answer["outcome"], "restore");
  EXPECT_EQ(answer["leave_node"], true);
  EXPECT_EQ(answer["recovery"], 2);
  EXPECT_EQ(answer["rows"][0]["evacuation"], "live");
  EXPECT_EQ(answer["rows"][0]["table"], "built in");
}

TEST(PolicyTest, AProbeDecidesIfNoStrongerEvidenceDecides) {
  const Json alone = run({"--probe", "hung", "-o", "json"}).json();
  EXPECT_EQ(alone["outcome"], "restore");
  EXPECT_EQ(alone["cordon"], true);
  EXPECT_EQ(run({"--probe", "hung", "--xid", "64", "-o", "json"}).json()["outcome"], "live");
  EXPECT_EQ(run({"--probe", "ok", "--recovery", "1", "-o", "json"}).json()["outcome"], "restore");
  EXPECT_EQ(run({"--silent", "-o", "json"}).json()["wants_probe"], true);
  EXPECT_EQ(run({"--probe", "maybe"}).code, kUsage);
}

TEST(PolicyTest, AKernelLogLineIsParsed) {
  const Json answer =
      run({"--line",
           "NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (x)", "-o",
           "json"})
          .json();
  EXPECT_EQ(answer["recovery"], 4);
  EXPECT_EQ(answer["another_process"]["outcome"], "live");
}

TEST(PolicyTest, ACustomTableIsRead) {
  std::string folder = (std::filesystem::temp_directory_path() / "gpumigrate-policy-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/table.csv";
  const std::string header = "xid,name,cause,memory_readable,action,evacuation,source\n";
  std::ofstream(path) << header << "63,OURS,memory,no,reset_gpu,restore,\n";
  const Json answer = run({"--xid", "63", "--table", path, "-o", "json"}).json();
  EXPECT_EQ(answer["outcome"], "restore");
  EXPECT_EQ(answer["rows"][0]["table"], path);
  std::ofstream(path) << header << "63,OURS,memory,no,reset_gpu,perhaps,\n";
  const Ran wrong = run({"--xid", "63", "--table", path});
  EXPECT_EQ(wrong.code, kUsage);
  EXPECT_THAT(wrong.err, HasSubstr(path + ":2:29: \"perhaps\" must be one of none, live, restore"));
  std::filesystem::remove_all(folder);
}

TEST(PolicyTest, InputWithoutAFaultIsRefused) {
  EXPECT_EQ(run({}).code, kUsage);
  EXPECT_EQ(run({"--xid", "0"}).code, kUsage);
  EXPECT_EQ(run({"--xid", "94x"}).code, kUsage);
  EXPECT_EQ(run({"--line", "something else"}).code, kUsage);
}

}  // namespace
}  // namespace ckpt::cli
