// SPDX-License-Identifier: Apache-2.0
// Tests of the driver's remap methods after a restore. They are probed on the software driver in several
// configurations, stored, and found again.
#include "agent/gpus/remap.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/agent/support/loop.h"
#include "tests/unit/agent/support/temporary_folder.h"
#include "tests/unit/agent/support/together.h"

namespace ckpt::agent {
namespace {

using Json = nlohmann::ordered_json;

class RemapTest : public ::testing::Test {
 protected:
  Result<RemapFacts> probe(const std::string& imports, const std::string& devices = "2") {
    RemapProbe wanted;
    wanted.program = CONTEXT_PROGRAM;
    wanted.environment = {"CUDASIM_IMPORT_AFTER_RESTORE=" + imports, "CUDASIM_DEVICES=" + devices};
    wanted.output = folder_.path() + "/out";
    return run_until_done(io_, probe_remap(wanted));
  }

  asio::io_context io_;
  TemporaryFolder folder_;
};

TEST_F(RemapTest, RecognizesADriverThatImportsMemory) {
  const auto facts = probe("always");
  ASSERT_TRUE(facts.has_value()) << facts.error().to_string();
  EXPECT_EQ(facts->import, true) << facts->problem;
  EXPECT_EQ(facts->own, true);
  EXPECT_EQ(facts->import_moved, true);
  EXPECT_EQ(facts->own_moved, true);
  EXPECT_EQ(facts->problem, "");
  EXPECT_TRUE(facts->imports());
}

TEST_F(RemapTest, RecognizesADriverThatNeverImportsMemory) {
  const auto facts = probe("never");
  ASSERT_TRUE(facts.has_value()) << facts.error().to_string();
  EXPECT_EQ(facts->import, false);
  EXPECT_EQ(facts->import_moved, false);
  EXPECT_EQ(facts->own_moved, true);
  EXPECT_FALSE(facts->imports());
  EXPECT_TRUE(facts->makes());
  EXPECT_NE(facts->problem.find("NOT_SUPPORTED"), std::string::npos);
}

TEST_F(RemapTest, RecognizesADriverThatImportsOnlyOnTheSameGpu) {
  const auto facts = probe("same");
  ASSERT_TRUE(facts.has_value()) << facts.error().to_string();
  EXPECT_EQ(facts->import, true);
  EXPECT_EQ(facts->import_moved, false);
  EXPECT_FALSE(facts->imports());
}

TEST_F(RemapTest, ProbeWithASingleGpuSkipsTheMove) {
  const auto facts = probe("same", "1");
  ASSERT_TRUE(facts.has_value()) << facts.error().to_string();
  EXPECT_EQ(facts->import, true);
  EXPECT_EQ(facts->import_moved, std::nullopt);
  EXPECT_TRUE(facts->imports());
  EXPECT_NE(facts->problem.find("no second GPU"), std::string::npos);
}

TEST_F(RemapTest, ProbeProgramWithoutOutputIsAnError) {
  RemapProbe wanted;
  wanted.program = "/bin/true";
  wanted.output = folder_.path() + "/out";
  const auto facts = run_until_done(io_, probe_remap(wanted));
  ASSERT_FALSE(facts.has_value());
  EXPECT_NE(facts.error().to_string().find("exit status 0"), std::string::npos);
}

TEST_F(RemapTest, StoredFactsAreLoaded) {
  RemapFacts facts;
  facts.import = false;
  facts.own = true;
  facts.own_moved = true;
  facts.driver = "13000/580.1";
  facts.gpu = "a GPU";
  facts.problem = "says \"no\"";
  EXPECT_FALSE(load_remap_facts(folder_.path()).has_value());
  ASSERT_TRUE(save_remap_facts(folder_.path(), facts).has_value());
  const auto kept = load_remap_facts(folder_.path());
  ASSERT_TRUE(kept.has_value()) << kept.error().to_string();
  EXPECT_EQ(to_json(*kept), to_json(facts));
  EXPECT_EQ(kept->import_moved, std::nullopt);
}

TEST_F(RemapTest, DamagedFactsAreNotRead) {
  for (const char* text : {"", "{", "[]", R"({"import": 1})", R"({"import": "true"})"}) {
    std::ofstream(folder_.path() + "/remap.json") << text;
    EXPECT_FALSE(load_remap_facts(folder_.path()).has_value()) << text;
  }
}

class ChoiceTest : public RemapTest {
 protected:
  ChoiceTest() {
    config_.home = folder_.path();
    ContextSettings settings;
    settings.program = CONTEXT_PROGRAM;
    settings.log_path = folder_.path() + "/context.log";
    contexts_ = ContextHelper::create(io_.get_executor(), settings);
  }
  Result<void> prepare(RemapChoice& choice) { return run_until_done(io_, choice.prepare()); }

  Config config_;
  std::shared_ptr<ContextHelper> contexts_;
};

TEST_F(ChoiceTest, ProbeRunsOncePerDriverAndGpu) {
  RemapChoice choice(io_.get_executor(), config_, *contexts_, CONTEXT_PROGRAM);
  EXPECT_TRUE(choice.imports()) << "nobody has found out";
  ASSERT_TRUE(prepare(choice).has_value());
  EXPECT_TRUE(choice.imports());
  auto facts = *load_remap_facts(folder_.path());
  EXPECT_EQ(facts.gpu, "cudasim software GPU");
  facts.import_moved = false;
  ASSERT_TRUE(save_remap_facts(folder_.path(), facts).has_value());
  ASSERT_TRUE(prepare(choice).has_value());
  EXPECT_FALSE(choice.imports()) << "what is kept counts";
  EXPECT_FALSE(RemapChoice(io_.get_executor(), config_, *contexts_, CONTEXT_PROGRAM).imports())
      << "also for the next agent";
  facts.driver = "11000";
  ASSERT_TRUE(save_remap_facts(folder_.path(), facts).has_value());
  ASSERT_TRUE(prepare(choice).has_value());
  EXPECT_TRUE(choice.imports()) << "it was of another driver";
  facts.gpu = "another GPU";
  ASSERT_TRUE(save_remap_facts(folder_.path(), facts).has_value());
  ASSERT_TRUE(prepare(choice).has_value());
  EXPECT_TRUE(choice.imports()) << "and of another GPU";
}

TEST_F(ChoiceTest, ConcurrentMigrationsShareOneProbe) {
  // A probe that counts its starts, and runs until all callers have sent their requests.
  const std::string counted = folder_.path() + "/asked";
  const std::string probe = folder_.path() + "/probe";
  std::ofstream(probe) << "#!/bin/sh\necho x >> " << counted << "\n"
                       << R"(echo '{"remap":{"import":true,"own":true}}')"
                       << "\n";
  std::filesystem::permissions(probe, std::filesystem::perms::owner_all);
  RemapChoice choice(io_.get_executor(), config_, *contexts_, probe);
  std::vector<Task<Result<void>>> all;
  for (int i = 0; i < 4; ++i) all.push_back(choice.prepare());
  for (const auto& prepared : run_all_until_done(io_, std::move(all))) EXPECT_TRUE(prepared.has_value());
  EXPECT_EQ(*read_file(counted, 100), "x\n");
  EXPECT_TRUE(load_remap_facts(folder_.path()).has_value());
}

TEST_F(ChoiceTest, SettingOverridesTheProbe) {
  config_.remap = "own";
  RemapChoice own(io_.get_executor(), config_, *contexts_, "/no/such/program");
  EXPECT_TRUE(prepare(own).has_value());
  EXPECT_FALSE(own.imports());
  EXPECT_FALSE(own.is_free());
  config_.remap = "import";
  EXPECT_TRUE(own.imports());
}

TEST_F(ChoiceTest, FailedProbeRefusesNoMigration) {
  RemapChoice choice(io_.get_executor(), config_, *contexts_, "/bin/false");
  EXPECT_TRUE(prepare(choice).has_value());
  EXPECT_TRUE(choice.imports());
  EXPECT_TRUE(choice.is_free());
}

TEST_F(ChoiceTest, DriverWithoutAMemoryMethodIsRefusedAndProbedAgain) {
  // The probe fails the first time.
  const std::string asked = folder_.path() + "/asked";
  const std::string probe = folder_.path() + "/probe";
  std::ofstream(probe) << "#!/bin/sh\ncan=true; [ -e " << asked << " ] || can=false; : > " << asked << "\n"
                       << R"(echo "{\"remap\":{\"import\":$can,\"own\":$can}}")"
                       << "\n";
  std::filesystem::permissions(probe, std::filesystem::perms::owner_all);
  RemapChoice choice(io_.get_executor(), config_, *contexts_, probe);
  const auto refused = prepare(choice);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kRefused);
  EXPECT_FALSE(load_remap_facts(folder_.path()).has_value()) << "a fault of the moment is not kept";
  EXPECT_TRUE(prepare(choice).has_value());
  EXPECT_TRUE(load_remap_facts(folder_.path()).has_value());
}

}  // namespace
}  // namespace ckpt::agent
