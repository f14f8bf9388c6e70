// SPDX-License-Identifier: Apache-2.0
// Calls a fuzz target once for each file that it is given, and for each file of a folder: the corpus as a test of every build.
// Fails if there is nothing to call it with.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

std::size_t replay(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path)) files += replay(entry.path());
    return files;
  }
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  // Named before it is tried, so that the last line before a crash is the culprit.
  std::printf("%s\n", path.c_str());
  std::fflush(stdout);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t files = 0;
  for (int i = 1; i < argc; ++i) files += replay(argv[i]);
  return files > 0 ? 0 : 1;
}
