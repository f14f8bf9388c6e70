// SPDX-License-Identifier: Apache-2.0
// A separate folder for a test, and backups of the content of such a folder.
// Threads: one.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "libckpt/store/backup/backup_file.h"

namespace ckpt::backup {

class BackupTest : public ::testing::Test {
 protected:
  BackupTest() {
    std::string name = ::testing::TempDir() + "backup-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::filesystem::create_directory(home());
  }
  ~BackupTest() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string home() const { return folder_ + "/coordinator"; }
  [[nodiscard]] std::string file() const { return folder_ + "/file"; }
  [[nodiscard]] std::string path(std::string_view name) const { return home() + "/" + std::string(name); }
  static void put(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  static std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Returns the content of part `i` of home(). The first part, the store, has several full blocks and a
  // partial block.
  static std::string part_text(std::size_t i, const std::string& mark) {
    const std::size_t bytes = i == 0 ? 2 * kBlockBytes + 100 : i == 1 ? kBlockBytes : i == 2 ? 0 : 33;
    std::string text;
    while (text.size() < bytes) text += mark + std::to_string(i * 1000 + text.size());
    text.resize(bytes);
    return text;
  }
  void fill_home(const std::string& mark) const {
    for (std::size_t i = 0; i < kParts.size(); ++i) put(path(kParts[i]), part_text(i, mark));
  }
  // Creates a backup of home() in file().
  void make_backup() const {
    Contents contents;
    contents.cluster = "c0ffee";
    contents.software = "1.2";
    contents.made_ms = 77;
    contents.jobs = 3;
    contents.migrations = 4;
    std::vector<UniqueFd> parts;
    for (const std::string_view name : kParts) {
      parts.emplace_back(::open(path(name).c_str(), O_RDONLY | O_CLOEXEC));
      contents.sizes.push_back(std::filesystem::file_size(path(name)));
    }
    const auto written = write_backup(file(), contents, parts);
    ASSERT_TRUE(written.has_value()) << written.error().to_string();
  }

 private:
  std::string folder_;
};

}  // namespace ckpt::backup
