// SPDX-License-Identifier: Apache-2.0
// Tests the diagnosis from the facts of a node, complete or with missing parts, and the command with a script
// that plays the agent.
#include "tools/gpumigrate/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace ckpt::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Returns the facts of a node that has everything.
Json full() {
  const Json device = {{"name", "NVIDIA H200"},
                       {"bytes", 150110011392},
                       {"virtual_memory", true},
                       {"descriptors", true},
                       {"direct_rdma", true}};
  return {{"node", {{"name", "host"}, {"kernel", "Linux 6.1"}, {"root", true}}},
          {"driver",
           {{"loaded", true},
            {"version", 13000},
            {"checkpoint", true},
            {"change_gpu", true},
            {"devices", {device, device}},
            {"module", "580.95.05"}}},
          {"remap",
           {{"import", true}, {"own", true}, {"import_moved", true}, {"own_moved", true}, {"problem", ""}}},
          {"ucx",
           {{"version", "1.13.1"},
            {"components", {"cuda_cpy", "ib", "tcp"}},
            {"transports", {"rc_mlx5/mlx5_0:1", "tcp/eth0"}}}},
          {"criu",
           {{"program", "/usr/sbin/criu"},
            {"version", "4.1"},
            {"works", true},
            {"restores_lazily", true},
            {"problem", ""}}},
          {"kernel",
           {{"write_tracking", true},
            {"pid_namespaces", true},
            {"descriptors", 1048576},
            {"memory_files", true},
            {"memory_folder", "/dev/shm"},
            {"memory_folder_bytes", 68719476736},
            {"memory_folder_free_bytes", 64424509440},
            {"tls", true},
            {"tls_module", true}}},
          {"rdma", {"mlx5_0"}}};
}

Finding found(const Diagnosis& diagnosis, const std::string& what) {
  for (const Finding& finding : diagnosis.findings) {
    if (finding.what == what) return finding;
  }
  ADD_FAILURE() << "no finding " << what;
  return {};
}

Ability ability(const Diagnosis& diagnosis, const std::string& words) {
  for (const Ability& item : diagnosis.abilities) {
    if (item.what.find(words) != std::string::npos) return item;
  }
  ADD_FAILURE() << "no ability " << words;
  return {};
}

TEST(Doctor, AProcessThatCannotImportMemoryAllocatesItsOwnMemory) {
  Json facts = full();
  facts["remap"]["import_moved"] = false;
  facts["remap"]["problem"] = "CUDA_ERROR_NOT_SUPPORTED";
  const Finding own = found(diagnose(facts), "import after a restore");
  EXPECT_EQ(own.answer, Answer::kNo);
  EXPECT_EQ(own.value, "CUDA_ERROR_NOT_SUPPORTED");
  EXPECT_THAT(own.to_do, HasSubstr("allocates its own memory"));
  facts["remap"]["own_moved"] = false;
  EXPECT_THAT(found(diagnose(facts), "import after a restore").to_do, HasSubstr("cannot be moved"));
  facts["remap"]["import_moved"] = nullptr;  // the node has no second GPU
  EXPECT_EQ(found(diagnose(facts), "import after a restore").answer, Answer::kYes);
  facts.erase("remap");
  EXPECT_EQ(found(diagnose(facts), "import after a restore").answer, Answer::kUnknown);
}

TEST(Doctor, ACompleteNodeLacksNoAbility) {
  const Diagnosis diagnosis = diagnose(full());
  for (const Finding& finding : diagnosis.findings) EXPECT_EQ(finding.answer, Answer::kYes) << finding.what;
  for (const Ability& item : diagnosis.abilities) {
    EXPECT_EQ(item.answer, Answer::kYes) << item.what;
    EXPECT_THAT(item.missing, IsEmpty()) << item.what;
  }
  EXPECT_EQ(found(diagnosis, "CUDA driver").value, "CUDA 13.0, NVIDIA's kernel module 580.95.05");
  EXPECT_EQ(found(diagnosis, "CUDA devices").value, "2 x NVIDIA H200 (139.80 GiB)");
  EXPECT_THAT(to_text(diagnosis), Not(HasSubstr("\nAdvice:")));
}

TEST(Doctor, EveryFindingHasAPurposeAndARemedy) {
  for (const Json& facts : {full(), Json::object(), Json(nullptr)}) {
    for (const Finding& finding : diagnose(facts).findings) {
      EXPECT_FALSE(finding.needed_for.empty()) << finding.what;
      EXPECT_FALSE(finding.to_do.empty()) << finding.what;
    }
  }
}

TEST(Doctor, MissingFactsAreReportedAsUnknown) {
  for (const Json& facts :
       {Json::object(), Json(nullptr), Json::array(), Json{{"driver", 3}, {"ucx", "x"}}}) {
    const Diagnosis diagnosis = diagnose(facts);
    for (const Finding& finding : diagnosis.findings)
      EXPECT_EQ(finding.answer, Answer::kUnknown) << finding.what << " of " << facts;
    for (const Ability& item : diagnosis.abilities) EXPECT_EQ(item.answer, Answer::kUnknown) << item.what;
  }
}

TEST(Doctor, ADriverWithoutAGpuIsReportedWithItsOwnError) {
  Json facts = full();
  facts["driver"]["problem"] = "cuInit: CUDA_ERROR_NO_DEVICE";
  facts["driver"]["devices"] = Json::array();
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_EQ(found(diagnosis, "CUDA driver").answer, Answer::kNo);
  EXPECT_THAT(found(diagnosis, "CUDA driver").value, HasSubstr("cuInit: CUDA_ERROR_NO_DEVICE"));
  EXPECT_THAT(found(diagnosis, "CUDA driver").to_do, HasSubstr("CUDA_VISIBLE_DEVICES"));
  EXPECT_EQ(found(diagnosis, "CUDA devices").answer, Answer::kNo);
  EXPECT_EQ(found(diagnosis, "second GPU").answer, Answer::kNo);
  EXPECT_EQ(found(diagnosis, "virtual memory management").answer, Answer::kUnknown);
  EXPECT_EQ(ability(diagnosis, "ckpt.h, to other nodes").answer, Answer::kNo);
  EXPECT_EQ(ability(diagnosis, "ckpt.h, to other nodes").missing,
            (std::vector<std::string>{"CUDA driver", "CUDA devices"}));
}

TEST(Doctor, AMissingDriverIsReportedWithItsRemedy) {
  Json facts = full();
  facts["driver"] = {{"loaded", false}, {"problem", "libcuda.so.1: cannot open shared object file"}};
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_EQ(found(diagnosis, "CUDA driver").answer, Answer::kNo);
  EXPECT_THAT(found(diagnosis, "CUDA driver").to_do, HasSubstr("Install NVIDIA's driver"));
  EXPECT_EQ(found(diagnosis, "CUDA devices").answer, Answer::kNo);
  EXPECT_EQ(found(diagnosis, "driver checkpoint").answer, Answer::kUnknown);
}

TEST(Doctor, ASilentMoverDoesNotHideOtherFindings) {
  Json facts = full();
  facts["driver"] = {{"problem", "gpumigrate-mover --probe did not end within 60000 ms"}};
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_EQ(found(diagnosis, "CUDA driver").answer, Answer::kUnknown);
  EXPECT_THAT(found(diagnosis, "CUDA driver").value, HasSubstr("did not end"));
  EXPECT_EQ(found(diagnosis, "CRIU").answer, Answer::kYes);
  EXPECT_EQ(ability(diagnosis, "host memory").answer, Answer::kYes);
}

TEST(Doctor, AnOlderDriverCannotRestoreOnAnotherGpu) {
  Json facts = full();
  facts["driver"]["version"] = 12080;
  facts["driver"]["change_gpu"] = false;
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_THAT(found(diagnosis, "CUDA driver").value, HasSubstr("CUDA 12.8"));
  EXPECT_EQ(found(diagnosis, "driver checkpoint").answer, Answer::kYes);
  EXPECT_THAT(found(diagnosis, "restore on another GPU").to_do, HasSubstr("580"));
  const Ability swap = ability(diagnosis, "swap");
  EXPECT_EQ(swap.answer, Answer::kNo);
  EXPECT_EQ(swap.missing, std::vector<std::string>{"restore on another GPU"});
  EXPECT_EQ(ability(diagnosis, "ckpt.h, to other nodes").answer, Answer::kYes);
}

TEST(Doctor, UnmodifiedProgramsStayOnANodeWithoutCriuOrRoot) {
  Json facts = full();
  facts["criu"] = {{"program", ""}, {"version", ""}, {"works", false}, {"problem", "There is no CRIU"}};
  facts["node"]["root"] = false;
  facts["kernel"]["pid_namespaces"] = false;
  facts["kernel"]["pid_namespaces_problem"] = "Operation not permitted";
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_EQ(found(diagnosis, "CRIU").value, "There is no CRIU");
  EXPECT_EQ(found(diagnosis, "PID namespaces").value, "Operation not permitted");
  EXPECT_EQ(ability(diagnosis, "swap").answer, Answer::kYes);
  const Ability across = ability(diagnosis, "unmodified programs to other nodes");
  EXPECT_EQ(across.answer, Answer::kNo);
  EXPECT_EQ(across.missing, (std::vector<std::string>{"root", "PID namespaces", "CRIU"}));
}

TEST(Doctor, GpuWithoutAFeatureIsReportedByName) {
  Json facts = full();
  facts["driver"]["devices"][1]["descriptors"] = false;
  facts["driver"]["devices"][0]["direct_rdma"] = nullptr;
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_EQ(found(diagnosis, "memory as descriptors").answer, Answer::kNo);
  EXPECT_EQ(found(diagnosis, "memory as descriptors").value, "not GPU 1");
  EXPECT_EQ(found(diagnosis, "GPUDirect RDMA").answer, Answer::kUnknown);
  EXPECT_EQ(ability(diagnosis, "by RDMA").answer, Answer::kUnknown);
  EXPECT_EQ(ability(diagnosis, "by RDMA").missing, std::vector<std::string>{"GPUDirect RDMA"});
  facts["rdma"] = Json::array();
  EXPECT_EQ(ability(diagnose(facts), "by RDMA").answer, Answer::kNo);
  EXPECT_EQ(ability(diagnose(facts), "by RDMA").missing, std::vector<std::string>{"RDMA"});
}

TEST(Doctor, TransportsWithinANodeAreNotCountedAsUcx) {
  Json facts = full();
  facts["ucx"]["transports"] = {"self/memory", "sysv/memory"};
  facts["ucx"]["components"] = {"self", "sysv"};
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_EQ(found(diagnosis, "UCX").answer, Answer::kNo);
  EXPECT_EQ(found(diagnosis, "UCX with CUDA").answer, Answer::kNo);
  EXPECT_EQ(found(diagnosis, "RDMA").answer, Answer::kNo);
  EXPECT_THAT(found(diagnosis, "RDMA").value, HasSubstr("does not use"));
}

TEST(Doctor, LowKernelLimitsAreReported) {
  Json facts = full();
  facts["kernel"]["descriptors"] = 4096;
  facts["kernel"]["memory_folder_free_bytes"] = 1 << 26;
  facts["kernel"]["write_tracking"] = false;
  facts["criu"]["restores_lazily"] = false;
  facts["kernel"]["tls"] = false;
  Diagnosis diagnosis = diagnose(facts);
  EXPECT_EQ(found(diagnosis, "open files limit").answer, Answer::kNo);
  EXPECT_EQ(found(diagnosis, "memory folder").answer, Answer::kNo);
  EXPECT_THAT(found(diagnosis, "memory folder").value, HasSubstr("64.00 MiB free"));
  EXPECT_EQ(ability(diagnosis, "before the pause").missing, std::vector<std::string>{"write tracking"});
  EXPECT_EQ(ability(diagnosis, "after the pause").missing, std::vector<std::string>{"lazy pages"});
  EXPECT_EQ(found(diagnosis, "kernel TLS").to_do, "Run `modprobe tls`");
  facts["kernel"]["tls_module"] = false;
  facts["kernel"]["memory_folder"] = nullptr;
  diagnosis = diagnose(facts);
  EXPECT_THAT(found(diagnosis, "kernel TLS").to_do, HasSubstr("CONFIG_TLS"));
  EXPECT_EQ(found(diagnosis, "memory folder").answer, Answer::kNo);
}

// `criu check` tests the kernel. The check does not detect a filter or a missing capability that stops this
// process.
TEST(Doctor, CriuThatCannotMoveAProcessIsReportedAsMissing) {
  Json facts = full();
  facts["criu"]["moves"] = true;
  EXPECT_EQ(found(diagnose(facts), "CRIU").answer, Answer::kYes);
  facts["criu"]["moves"] = false;
  facts["criu"]["problem"] = "suspending seccomp failed: Operation not permitted";
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_EQ(found(diagnosis, "CRIU").answer, Answer::kNo);
  EXPECT_THAT(found(diagnosis, "CRIU").value, HasSubstr("suspending seccomp failed"));
  EXPECT_THAT(found(diagnosis, "CRIU").to_do, HasSubstr("no seccomp filter"));
}

TEST(Doctor, TextAndJsonAgree) {
  Json facts = full();
  facts["criu"]["works"] = false;
  facts["node"]["name"] = "ho\x1b[2Jst";
  const Diagnosis diagnosis = diagnose(facts);
  const std::string text = to_text(diagnosis);
  EXPECT_THAT(text, HasSubstr("This node: ho?[2Jst, Linux 6.1"));
  EXPECT_THAT(text, HasSubstr("\nAdvice:\n  CRIU: Run `tools/criu install`"));
  const Json json = to_json(diagnosis);
  EXPECT_EQ(json["findings"].size(), diagnosis.findings.size());
  for (const Json& finding : json["findings"]) {
    const bool criu = finding["what"] == "CRIU" || finding["what"] == "lazy pages";
    if (finding["what"] == "CRIU") {
      EXPECT_EQ(finding["answer"], "no");
    }
    if (!criu) {
      EXPECT_TRUE(finding["to_do"].is_null()) << finding;
    }
    EXPECT_THAT(text, HasSubstr(finding["what"].get<std::string>()));
  }
  EXPECT_EQ(json["can"].size(), diagnosis.abilities.size());
}

// A shell script that plays the agent.
class FakeAgent {
 public:
  explicit FakeAgent(const std::string& script) {
    std::string folder = "/tmp/doctor-test-XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    std::ofstream(path()) << "#!/bin/sh\n" << script;
    ::chmod(path().c_str(), 0700);
  }
  ~FakeAgent() { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path() const { return folder_ + "/agent"; }

 private:
  std::string folder_;
};

constexpr std::chrono::seconds kLong{60};

TEST(Doctor, FactsOfAProgramAreParsed) {
  const FakeAgent agent(R"(echo "{\"word\": \"$1 $SAID\"}")");
  const auto facts = ask_for_facts({agent.path(), "--probe"}, {"SAID=hello"}, kLong);
  ASSERT_TRUE(facts.has_value()) << facts.error().to_string();
  EXPECT_EQ((*facts)["word"], "--probe hello");
}

TEST(Doctor, FailingMalformedOrMissingProgramIsAnError) {
  const FakeAgent fails("echo '{}'; exit 3");
  EXPECT_EQ(ask_for_facts({fails.path()}, {}, kLong).error().code(), ErrorCode::kIo);
  const FakeAgent nonsense("echo hello");
  EXPECT_EQ(ask_for_facts({nonsense.path()}, {}, kLong).error().code(), ErrorCode::kIo);
  EXPECT_EQ(ask_for_facts({"/nonexistent/agent"}, {}, kLong).error().code(), ErrorCode::kNotFound);
  const FakeAgent endless(
      "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done");
  EXPECT_EQ(ask_for_facts({endless.path()}, {}, kLong).error().code(), ErrorCode::kProtocol);
}

TEST(Doctor, AHungProgramIsKilled) {
  const FakeAgent hangs("exec sleep 1000");
  const auto facts = ask_for_facts({hangs.path()}, {}, std::chrono::milliseconds(50));
  ASSERT_FALSE(facts.has_value());
  EXPECT_EQ(facts.error().code(), ErrorCode::kTimedOut);
}

}  // namespace
}  // namespace ckpt::cli
