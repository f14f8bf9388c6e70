// SPDX-License-Identifier: Apache-2.0
// Tests ckpt-image: its output about a checkpoint store, and its exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/unit/libckpt/store/local/support.h"
#include "tools/ckpt-image/commands.h"

namespace ckpt::checkpoint_store::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class ToolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("gpumigrate-tool-" + std::to_string(::getpid()));
    std::filesystem::remove_all(folder_);
    auto checkpoint_store = must(CheckpointStore::open(folder_.string(), {}));
    content_.regions[1] = random_bytes(40 * kTestChunk, 1);
    content_.blobs["host"] = random_bytes(1000, 2);
    must(write_version(*checkpoint_store, "job", content_, nullptr));
    const Content before = content_;
    content_.regions[1][7 * kTestChunk] ^= std::byte{1};
    must(write_version(*checkpoint_store, "job", content_, &before));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  int run(std::vector<std::string> arguments) {
    out_.str("");
    err_.str("");
    return image_tool::run(arguments, out_, err_);
  }
  json run_json(std::vector<std::string> arguments, int code = image_tool::kDone) {
    arguments.push_back("--json");
    EXPECT_EQ(run(arguments), code) << err_.str();
    return json::parse(out_.str());
  }

  std::filesystem::path folder_;
  Content content_;
  std::ostringstream out_, err_;
};

TEST_F(ToolTest, ContentsAreListedWithoutTheKey) {
  const std::string dir = folder_.string();
  EXPECT_EQ(run_json({"list", dir})[0]["versions"], 2);
  EXPECT_EQ(run_json({"list", dir, "job"})[1]["parent"], 1);
  const json version = run_json({"inspect", dir, "job"});
  EXPECT_EQ(version["version"], 2);
  EXPECT_EQ(version["regions"][0]["bytes"], 40 * kTestChunk);
  EXPECT_EQ(version["blobs"][0]["name"], "host");
  EXPECT_FALSE(version.contains("content_key"));
  const json diff = run_json({"diff", dir, "job", "1", "2"});
  EXPECT_EQ(diff["regions"][0]["ranges"], json::parse("[[7, 1]]"));
  EXPECT_EQ(diff["changed_bytes"], kTestChunk);
  EXPECT_EQ(run({"list", dir}), image_tool::kDone);
  EXPECT_THAT(out_.str(), HasSubstr("job"));
  EXPECT_EQ(run({"inspect", dir, "job", "1", "-o", "table"}), image_tool::kDone);
  EXPECT_THAT(out_.str(), HasSubstr("version 1"));
}

TEST_F(ToolTest, VerifyFindsDamageAndNamesTheLostVersion) {
  const std::string dir = folder_.string();
  EXPECT_EQ(run_json({"verify", dir})["clean"], true);
  EXPECT_EQ(run({"verify", dir, "job", "1"}), image_tool::kDone);
  const auto pack = folder_ / "jobs/job/packs/0000000002.pack";
  {
    std::fstream file(pack, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(sizeof(PackHead) + sizeof(RecordHead) + 5);
    file.put('\x7f');
  }
  const json report = run_json({"verify", dir}, image_tool::kDamaged);
  EXPECT_EQ(report["jobs"]["job"]["versions"][0]["restorable"], true);
  EXPECT_EQ(report["jobs"]["job"]["versions"][1]["restorable"], false);
  EXPECT_EQ(run({"verify", dir, "job", "1"}), image_tool::kDone);
  EXPECT_EQ(run({"verify", dir, "job", "2"}), image_tool::kDamaged);
  EXPECT_THAT(err_.str(), HasSubstr("Chunk 7 of region 1"));
}

TEST_F(ToolTest, RefusalsUseTheDocumentedExitCodes) {
  const std::string dir = folder_.string();
  EXPECT_EQ(run({"list", dir + "/nowhere"}), image_tool::kRefused);
  EXPECT_EQ(run({"list", dir, "other"}), image_tool::kRefused);
  EXPECT_EQ(run({"inspect", dir, "job", "9"}), image_tool::kRefused);
  EXPECT_EQ(run({"verify", dir, "other"}), image_tool::kRefused);
  EXPECT_EQ(run({"list", dir, "../job"}), image_tool::kUsage);
  EXPECT_EQ(run({"diff", dir, "job", "1"}), image_tool::kUsage);
  EXPECT_EQ(run({}), image_tool::kUsage);
  EXPECT_EQ(run({"--help"}), image_tool::kDone);
  EXPECT_FALSE(std::filesystem::exists(dir + "/nowhere")) << "looking changes nothing";
}

}  // namespace
}  // namespace ckpt::checkpoint_store::test
