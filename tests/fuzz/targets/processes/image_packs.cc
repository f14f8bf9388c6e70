// SPDX-License-Identifier: Apache-2.0
// The image of a process as another node sends it. The input is {claimed size minus real size i8, zeroes
// before the rest in units of 256 KiB u8, the rest}. For any input, no file appears outside the folder. An
// accepted image is in the folder and contains only plain files and one link to the pack itself. Packed again
// it is the same.
#include "agent/host_process/image_pack.h"

#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/scratch_folder.h"

namespace ckpt::fuzz {
namespace {

using agent::host::pack_folder;
using agent::host::unpack_folder;

constexpr std::uint64_t kFrontUnit = 256 << 10;
constexpr std::uint8_t kMaxFront = 8;

struct Files {
  std::map<std::string, std::string> plain;
  std::size_t links = 0;
};

Files files_of(const std::string& folder, int pack) {
  Files files;
  const std::string itself = "proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(pack);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    struct stat facts {};
    FUZZ_CHECK(::lstat(entry.path().c_str(), &facts) == 0);
    if (S_ISLNK(facts.st_mode)) {
      // The link climbs up to the root folder (link_to_descriptor()).
      const std::string target = std::filesystem::read_symlink(entry.path());
      FUZZ_CHECK(target.starts_with("../") && target.substr(target.rfind("../") + 3) == itself);
      ++files.links;
      continue;
    }
    FUZZ_CHECK(S_ISREG(facts.st_mode) && (facts.st_mode & 07777) == 0600);
    const auto content = read_file(entry.path(), 16 << 20);
    FUZZ_CHECK(content.has_value());
    files.plain[entry.path().filename()] = *content;
  }
  FUZZ_CHECK(files.links <= 1);
  return files;
}

std::string empty_folder(const std::string& name) {
  const std::string folder = scratch_folder() + "/" + name;
  std::filesystem::remove_all(folder);
  FUZZ_CHECK(std::filesystem::create_directory(folder));
  return folder;
}

void check_same_again(const Files& files, const std::string& folder, std::uint64_t bytes) {
  const auto packed = pack_folder(folder);
  FUZZ_CHECK(packed.has_value() && packed->bytes == bytes);
  const int file = packed->file.get();
  const std::string again = empty_folder("again");
  FUZZ_CHECK(unpack_folder(file, bytes, again).has_value());
  const Files other = files_of(again, file);
  // If the files have another order, one of them may be a link to the pack, and `plain` lacks it.
  FUZZ_CHECK(other.links > 0 || other.plain == files.plain);
  std::filesystem::remove_all(again);
}

void check(std::span<const std::byte> rest, std::uint64_t front, std::uint64_t beyond) {
  const auto made = make_memory_file("fuzz", front + rest.size());
  FUZZ_CHECK(made.has_value());
  const int file = made->get();
  FUZZ_CHECK(::lseek(file, static_cast<off_t>(front), SEEK_SET) >= 0 && write_all(file, rest).has_value());
  const std::string folder = empty_folder("image");
  if (unpack_folder(file, front + rest.size() + beyond, folder)) {
    FUZZ_CHECK(beyond == 0);
    const Files files = files_of(folder, file);
    FUZZ_CHECK(files.links == 0 || front + rest.size() >= agent::host::kLinkedBytes);
    if (files.links == 0) check_same_again(files, folder, front + rest.size());
  }
  for (const auto& entry : std::filesystem::directory_iterator(scratch_folder()))
    FUZZ_CHECK(entry.path().filename() == "image");
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ckpt::fuzz::Input input(data, size);
  const auto beyond = input.number<std::int8_t>();
  const auto front = input.number<std::uint8_t>() % ckpt::fuzz::kMaxFront;
  ckpt::fuzz::check(input.rest(), front * ckpt::fuzz::kFrontUnit, static_cast<std::uint64_t>(beyond));
  return 0;
}
