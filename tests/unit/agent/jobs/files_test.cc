// SPDX-License-Identifier: Apache-2.0
// Tests of the folders and files of job instances, and of the GPUs' library.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "agent/gpus/gpu_identity.h"
#include "agent/gpus/nvml.h"
#include "agent/jobs/keeper_files.h"
#include "agent/migration/modes/cooperative_mode.h"
#include "libckpt/base/fd.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent {
namespace {

JobRecord some_record() {
  JobRecord record;
  record.spec.job = 7;
  record.spec.incarnation = 3;
  record.spec.argv = {"/bin/true", "x"};
  record.spec.cwd = "/";
  record.spec.env = {"PATH=/bin", "LD_LIBRARY_PATH=/mine", "EMPTY="};
  record.spec.ranks.emplace_back();
  record.spec.ranks.back().gpu_index = 2;
  record.role = wire::JobRole::kStandby;
  record.incarnation = 5;
  record.migration = 9;
  return record;
}

TEST(JobRecordFile, RecordIsReadAsWritten) {
  TemporaryFolder folder;
  JobRecord record = some_record();
  record.ran = true;
  record.exit_code = 3;
  ASSERT_TRUE(write_job_record(folder.path(), record));
  auto read = read_job_record(folder.path());
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->spec.job, 7u);
  EXPECT_EQ(read->incarnation, 5u);
  EXPECT_EQ(read->migration, 9u);
  EXPECT_EQ(read->role, wire::JobRole::kStandby);
  EXPECT_TRUE(read->ran);
  EXPECT_EQ(read->exit_code, 3);
}

TEST(JobRecordFile, DamagedRecordIsReported) {
  TemporaryFolder folder;
  ASSERT_TRUE(write_file_durably(folder / "record", "\x01garbage"));
  auto read = read_job_record(folder.path());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::kCorrupt);
}

TEST(InstanceFolders, FoldersAreListedByJobAndIncarnation) {
  TemporaryFolder jobs;
  for (const char* name :
       {"j10.1", "j2.3.m12", "j2.3.m9", "j2.1", "j2", "x1.1", "j1.", "j-1.1", "j2.3.m", "j2.3.mx", "j2.m4"}) {
    std::filesystem::create_directory(jobs / name);
  }
  auto folders = list_instance_folders(jobs.path());
  ASSERT_TRUE(folders);
  const std::vector<std::string> expected{jobs / "j2.1", jobs / "j2.3.m9", jobs / "j2.3.m12", jobs / "j10.1"};
  EXPECT_EQ(*folders, expected);
}

TEST(KeeperConfig, NodeEnvironmentOverridesTheJobEnvironment) {
  Config config;
  config.job_environment = {"LD_LIBRARY_PATH=/node", "EXTRA=1=2"};
  config.driver_files = {"/dev/one", "anon_inode:two"};
  const auto json = nlohmann::json::parse(keeper_config(some_record(), config));
  EXPECT_EQ(json["env"]["LD_LIBRARY_PATH"], "/node");
  EXPECT_EQ(json["env"]["EXTRA"], "1=2");
  EXPECT_EQ(json["env"]["PATH"], "/bin");
  EXPECT_EQ(json["env"]["EMPTY"], "");
  EXPECT_EQ(json["env"]["CUDA_VISIBLE_DEVICES"], "2");
  EXPECT_EQ(json["env"]["CKPT_DRIVER_FILES"], "/dev/one,anon_inode:two");
  EXPECT_EQ(json["role"], "standby");
  EXPECT_EQ(json["incarnation"], 3);
  EXPECT_EQ(json["job"], "j7");
}

TEST(KeeperConfig, TransparentJobReceivesItsLibraryQuotaAndImage) {
  Config config;
  config.shim_library = "/lib/shim.so";
  JobRecord record = some_record();
  EXPECT_FALSE(nlohmann::json::parse(keeper_config(record, config)).contains("preload"));
  record.spec.mode = MigrationMode::kTransparent;
  record.spec.gpu_memory_bytes = 4096;
  auto json = nlohmann::json::parse(keeper_config(record, config));
  EXPECT_EQ(json["way"], "transparent");
  EXPECT_EQ(json["preload"], "/lib/shim.so");
  EXPECT_EQ(json["gpu_memory_quota"], 4096);
  EXPECT_FALSE(json.contains("init"));
  EXPECT_FALSE(json.contains("restore"));
  config.init_program = "/bin/init";
  const HostRestore restore{{"/criu", "restore"}, "/run/pid", "/run/log"};
  json = nlohmann::json::parse(keeper_config(record, config, &restore));
  EXPECT_EQ(json["init"], "/bin/init");
  EXPECT_EQ(json["restore"]["command"], (std::vector<std::string>{"/criu", "restore"}));
  EXPECT_EQ(json["restore"]["pid_file"], "/run/pid");
  EXPECT_EQ(json["restore"]["criu_log"], "/run/log");
}

TEST(GpuIdentity, NvmlUuidAndAddressAreParsed) {
  const auto read = gpu_identity("GPU-01234567-89ab-cdef-0123-456789abcdef", "00000000:9B:1F.0");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->uuid[1], 0x23);
  EXPECT_EQ(to_text(read->uuid), "GPU-01234567-89ab-cdef-0123-456789abcdef");
  EXPECT_EQ(read->pci_bus, 0x9bu);
  EXPECT_EQ(read->pci_device, 0x1fu);
  for (const char* uuid :
       {"", "GPU-", "MIG-01234567-89ab-cdef-0123-456789abcdef", "GPU-01234567-89ab-cdef-0123-456789abcdeg",
        "GPU-0123456789ab-cdef-0123-456789abcdef-"})
    EXPECT_FALSE(parse_gpu_uuid(uuid)) << uuid;
  for (const char* bus : {"", "0000:9B", "0000:9B:1F", ":::", "0000:9B:zz.0"})
    EXPECT_FALSE(gpu_identity("GPU-01234567-89ab-cdef-0123-456789abcdef", bus)) << bus;
}

TEST(KeeperStatusFile, ExitCodesAndSignalsAreParsed) {
  TemporaryFolder folder;
  EXPECT_FALSE(read_keeper_status(folder.path()));
  ASSERT_TRUE(write_file_durably(folder / "status.json",
                                 R"({"state":"exited","exit_code":3,"ended_by_keeper":false})"));
  auto status = read_keeper_status(folder.path());
  ASSERT_TRUE(status);
  EXPECT_TRUE(status->exited);
  EXPECT_EQ(WEXITSTATUS(status->wait_status), 3);
  ASSERT_TRUE(
      write_file_durably(folder / "status.json", R"({"state":"exited","signal":9,"ended_by_keeper":true})"));
  status = read_keeper_status(folder.path());
  ASSERT_TRUE(status);
  EXPECT_EQ(WTERMSIG(status->wait_status), 9);
  EXPECT_TRUE(status->ended_by_keeper);
  EXPECT_FALSE(status->ran);
  ASSERT_TRUE(write_file_durably(folder / "status.json", R"({"exit_code":0,"ran":true,"incarnation":4})"));
  status = read_keeper_status(folder.path());
  ASSERT_TRUE(status);
  EXPECT_TRUE(status->ran);
  EXPECT_EQ(status->incarnation, 4U);
  ASSERT_TRUE(write_file_durably(folder / "status.json", R"({"exit_code":"3","ran":1,"incarnation":-4})"));
  status = read_keeper_status(folder.path());
  EXPECT_TRUE(!status || !status->exited);
}

TEST(HostState, HostStateIsSavedToAFile) {
  TemporaryFolder folder;
  auto memory = make_memory_file("test", 5);
  ASSERT_TRUE(memory);
  ASSERT_EQ(::pwrite(memory->get(), "abcde", 5, 0), 5);
  ASSERT_TRUE(save_host_state(memory->get(), 5, folder / "host_state"));
  auto loaded = load_host_state(folder / "host_state");
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  char text[6] = {};
  EXPECT_EQ(::pread(loaded->get(), text, 5, 0), 5);
  EXPECT_STREQ(text, "abcde");
}

TEST(HostState, TruncatedHostStateIsRefused) {
  TemporaryFolder folder;
  auto memory = make_memory_file("test", 5);
  ASSERT_TRUE(memory);
  auto saved = save_host_state(memory->get(), 6, folder / "host_state");
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code(), ErrorCode::kCorrupt);
}

TEST(NvmlLibrary, MissingLibraryIsAnError) {
  auto nvml = Nvml::create("/nonexistent/libnvidia-ml.so.1");
  ASSERT_FALSE(nvml);
  EXPECT_EQ(nvml.error().code(), ErrorCode::kNotSupported);
}

TEST(NvmlLibrary, LibraryWithoutTheEntryPointsIsRefusedByName) {
  auto nvml = Nvml::create("libc.so.6");
  ASSERT_FALSE(nvml);
  EXPECT_NE(nvml.error().to_string().find("nvmlInit_v2"), std::string::npos);
}

}  // namespace
}  // namespace ckpt::agent
