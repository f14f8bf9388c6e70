// SPDX-License-Identifier: Apache-2.0
// Lists of a process's open files at the source, as the target receives them: {length of a program u16, the
// program, the list}. The list survives encoding; a malformed list is refused as malformed. One of the files
// below is accepted if the list describes it correctly, and refused otherwise. The program is an arbitrary
// ELF file.
#include "agent/host_process/file_list.h"

#include <sys/stat.h>

#include "agent/host_process/files/build_id.h"
#include "libckpt/protocol/wire/codec.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/scratch_folder.h"

namespace ckpt::fuzz {
namespace {

using agent::host::build_id_of;
using agent::host::check_files;
using agent::host::FileFact;
using agent::host::FileList;
using agent::host::FileUse;

constexpr std::size_t kMaxIdDigits = 128;
constexpr std::size_t kTextBytes = 100;

struct Places {
  std::string program = scratch_folder() + "/program";
  std::string text = scratch_folder() + "/text";
  std::string pipe = scratch_folder() + "/pipe";
};

const Places& places() {
  static const Places made = [] {
    Places here;
    write_whole_file(here.text, std::string(kTextBytes, 't'));
    FUZZ_CHECK(::mkfifo(here.pipe.c_str(), 0600) == 0);
    return here;
  }();
  return made;
}

FileFact fact_of(FileUse use, const std::string& path) {
  FileFact fact;
  fact.use = use;
  fact.path = path;
  struct stat facts {};
  FUZZ_CHECK(::stat(path.c_str(), &facts) == 0);
  fact.bytes = static_cast<std::uint64_t>(facts.st_size);
  fact.device = facts.st_rdev;
  if (use == FileUse::kProgram) fact.build_id = build_id_of(path);
  return fact;
}

// Returns the fact with an existing path that suits its use. Its other fields remain the fuzzer's.
FileFact relocated(FileFact fact) {
  switch (fact.use) {
    case FileUse::kProgram:
      fact.path = places().program;
      break;
    case FileUse::kFolder:
      fact.path = scratch_folder();
      break;
    case FileUse::kDevice:
      fact.path = "/dev/null";
      break;
    case FileUse::kOther:
      fact.path = places().pipe;
      break;
    default:
      fact.path = places().text;
  }
  return fact;
}

bool is_true(const FileFact& fact) {
  const FileFact here = fact_of(fact.use, fact.path);
  switch (fact.use) {
    case FileUse::kRead:
      return fact.bytes == here.bytes;
    case FileUse::kWritten:
      return fact.bytes <= here.bytes;
    case FileUse::kProgram:
      return fact.bytes == here.bytes && fact.build_id == here.build_id;
    case FileUse::kDevice:
      return fact.device == here.device;
    default:
      return true;
  }
}

bool is_malformed(const FileFact& fact) {
  return !fact.path.starts_with('/') || fact.path.find('\0') != std::string::npos;
}

void check_program() {
  const std::string id = build_id_of(places().program);
  FUZZ_CHECK(id.size() <= kMaxIdDigits && id.size() % 2 == 0);
  FUZZ_CHECK(id.find_first_not_of("0123456789abcdef") == std::string::npos);
}

void check_list(FileList list) {
  list.bound.clear();  // ports of this machine are not tried here
  list.connected.clear();
  list.memory_bytes = 0;  // memory of this machine is not compared
  list.locks.clear();     // files are not locked
  const auto with_names = check_files(list);
  FUZZ_CHECK(with_names.has_value() || with_names.error().code() == ErrorCode::kRefused ||
             with_names.error().code() == ErrorCode::kProtocol);
  list.socket_folders.clear();
  list.named = {};
  list.folders.clear();
  const bool malformed = std::any_of(list.files.begin(), list.files.end(), is_malformed);
  if (malformed) {
    const auto refused = check_files(list);
    FUZZ_CHECK(!refused && refused.error().code() == ErrorCode::kProtocol);
  }
  bool all_true = true;
  for (FileFact& fact : list.files) {
    fact = relocated(fact);
    fact.identity = {};  // no identity, as from an older source
    fact.kernels_own = false;
    all_true = all_true && is_true(fact);
  }
  const auto checked = check_files(list);
  FUZZ_CHECK(checked.has_value() == all_true);
  FUZZ_CHECK(checked.has_value() || checked.error().code() == ErrorCode::kRefused);
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt;
  fuzz::Input input(data, size);
  const auto program = input.bytes(input.number<std::uint16_t>());
  fuzz::write_whole_file(fuzz::places().program,
                         {reinterpret_cast<const char*>(program.data()), program.size()});
  fuzz::check_program();
  const auto decoded = wire::decode<agent::host::FileList>(input.rest());
  if (!decoded) return 0;
  const auto& list = *decoded;
  const auto again = wire::decode<agent::host::FileList>(wire::encode(list));
  FUZZ_CHECK(again.has_value() && again->files == list.files);
  fuzz::check_list(list);
  return 0;
}
