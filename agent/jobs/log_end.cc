// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/log_end.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "libckpt/base/private_text.h"

namespace ckpt::agent {
namespace {

constexpr std::size_t kQuotedOutput = 400;

}  // namespace

std::string quoted_log_end(const std::string& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error || bytes == 0) return "(none)";
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(bytes > kQuotedOutput ? bytes - kQuotedOutput : 0));
  std::string text(std::min<std::uintmax_t>(bytes, kQuotedOutput), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& ch : text) {
    if (static_cast<unsigned char>(ch) < 0x20) ch = ' ';
  }
  return mark_private(PrivatePart::kOutput, "\"" + text + "\"");
}

}  // namespace ckpt::agent
