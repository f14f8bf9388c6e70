// SPDX-License-Identifier: Apache-2.0
// The folder that corpora are written to, with one folder per fuzz target. corpus_pack.py adds them to the
// packs.
// Threads: one. Errors: none are reported, since this is a manual tool.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace ckpt::fuzz {

using Bytes = std::vector<std::byte>;

inline std::string bytes_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
template <class T>
std::string raw(const T& value) {
  return bytes_text(std::as_bytes(std::span(&value, 1)));
}

class Corpus {
 public:
  explicit Corpus(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void add(const std::string& target, const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(folder_ / target);
    std::ofstream(folder_ / target / name, std::ios::binary) << bytes;
  }
  void add_numbered(const std::string& target, const std::string& bytes) {
    add(target, "seed" + std::to_string(++next_[target]), bytes);
  }

 private:
  std::filesystem::path folder_;
  std::map<std::string, unsigned> next_;
};

}  // namespace ckpt::fuzz
