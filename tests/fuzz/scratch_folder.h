// SPDX-License-Identifier: Apache-2.0
// A folder in memory for targets whose decoders read or write files. There is one per process; it is removed
// at the process's end.
#pragma once

#include <filesystem>
#include <string>

#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {

inline const std::string& scratch_folder() {
  static const std::string folder = [] {
    std::string name =
        std::filesystem::exists("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path();
    name += "/gpumigrate-fuzz-XXXXXX";
    FUZZ_CHECK(::mkdtemp(name.data()) != nullptr);
    static std::string kept = name;
    std::atexit([] { std::filesystem::remove_all(kept); });
    return name;
  }();
  return folder;
}

inline void write_whole_file(const std::string& path, std::string_view bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  FUZZ_CHECK(file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size());
  FUZZ_CHECK(std::fclose(file) == 0);
}

}  // namespace ckpt::fuzz
