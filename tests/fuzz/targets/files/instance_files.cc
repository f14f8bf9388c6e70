// SPDX-License-Identifier: Apache-2.0
// Files that an agent finds at home after a restart: {which u8, bytes}. They are an instance's record, its
// keeper's status, and the name of a folder. Accepted values are in range and are the same when written
// again.
#include "agent/jobs/job_record.h"
#include "agent/jobs/keeper_files.h"
#include "libckpt/protocol/wire/codec.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/scratch_folder.h"

namespace ckpt::fuzz {
namespace {

void check_record(const std::string& bytes) {
  write_whole_file(scratch_folder() + "/record", bytes);
  const auto record = agent::read_job_record(scratch_folder());
  if (!record) return;
  const auto once = wire::encode(*record);
  const auto again = wire::decode<agent::JobRecord>(once);
  FUZZ_CHECK(again.has_value() && wire::encode(*again) == once);
}

void check_status(const std::string& text) {
  write_whole_file(scratch_folder() + "/status.json", text);
  const auto status = agent::read_keeper_status(scratch_folder());
  if (!status) return;
  // -1: only the process's own parent knows the status
  FUZZ_CHECK(status->wait_status >= -1 && status->wait_status <= 255 << 8);
  FUZZ_CHECK(status->exited || status->wait_status == 0);
}

void check_folder(std::string name) {
  std::replace(name.begin(), name.end(), '/', 'j');
  name = name.substr(0, std::min<std::size_t>(name.find('\0'), 200));
  if (name.empty() || name == "." || name == "..") return;
  const std::string jobs = scratch_folder() + "/jobs";
  std::filesystem::remove_all(jobs);
  FUZZ_CHECK(std::filesystem::create_directories(jobs + "/" + name));
  const auto found = agent::list_instance_folders(jobs);
  FUZZ_CHECK(found.has_value() && found->size() <= 1);
  for (const std::string& folder : *found)
    FUZZ_CHECK(folder.starts_with(jobs + "/j") && folder.find('/', jobs.size() + 1) == std::string::npos);
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::fuzz;
  Input input(data, size);
  const auto which = input.number<std::uint8_t>();
  constexpr void (*kChecks[])(std::string) = {[](std::string text) { check_record(text); },
                                              [](std::string text) { check_status(text); }, check_folder};
  kChecks[which % std::size(kChecks)](input.text());
  return 0;
}
