// SPDX-License-Identifier: Apache-2.0
#include "tools/examples/charlm/text.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "libckpt/base/fd.h"
#include "tools/examples/common/gpu.h"

namespace ckpt::examples {
namespace {

constexpr const char* kDefaultFolder = "/usr/share/common-licenses";
constexpr const char* kBundledFolder =
    "../../licenses";  // relative to this program; another Linux may have no such texts
constexpr std::size_t kMaxBytes = std::size_t{256} << 20;

std::vector<std::string> files_of(const std::filesystem::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    // Links are skipped, because they refer to other files of the folder. So each text is read once.
    if (!entry.is_symlink() && entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> default_files() {
  std::vector<std::string> files = files_of(kDefaultFolder);
  std::error_code error;
  if (files.empty())
    files = files_of(std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / kBundledFolder);
  if (files.empty()) fail(std::string("no text in ") + kDefaultFolder + "; name one with --text FILE");
  return files;
}

}  // namespace

Text load_text(const std::string& file) {
  std::string bytes;
  for (const std::string& path : file.empty() ? default_files() : std::vector<std::string>{file}) {
    auto content = read_file(path, kMaxBytes);
    if (!content) fail(content.error().to_string());
    bytes += *content;
  }
  std::array<bool, 256> used{};
  for (const char c : bytes) used[static_cast<unsigned char>(c)] = true;
  Text text;
  std::array<std::uint8_t, 256> token{};
  for (std::size_t c = 0; c < used.size(); c++) {
    if (!used[c]) continue;
    token[c] = static_cast<std::uint8_t>(text.alphabet.size());
    text.alphabet += static_cast<char>(c);
  }
  text.tokens.reserve(bytes.size());
  for (const char c : bytes) text.tokens.push_back(token[static_cast<unsigned char>(c)]);
  return text;
}

}  // namespace ckpt::examples
