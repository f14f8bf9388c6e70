// SPDX-License-Identifier: Apache-2.0
// Tests the loader's cache as bytes: the paths that the cache returns for a name. Broken caches return no
// path and are never read beyond their end.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "libckpt/inprocess/shim/core/driver_search.h"

namespace ckpt::shim {
namespace {

void put_word(std::string& bytes, std::size_t offset, std::uint32_t word) {
  std::memcpy(bytes.data() + offset, &word, sizeof word);
}

std::string cache_of(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string bytes(48 + entries.size() * 24, '\0');
  bytes.replace(0, 20, "glibc-ld.so.cache1.1");
  put_word(bytes, 20, static_cast<std::uint32_t>(entries.size()));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    put_word(bytes, 48 + i * 24 + 4, static_cast<std::uint32_t>(bytes.size()));
    bytes += entries[i].first + '\0';
    put_word(bytes, 48 + i * 24 + 8, static_cast<std::uint32_t>(bytes.size()));
    bytes += entries[i].second + '\0';
  }
  return bytes;
}

TEST(DriverSearch, SearchFindsEachPathOfTheLibraryName) {
  const std::string cache = cache_of({{"libc.so.6", "/lib/libc.so.6"},
                                      {"libcuda.so.1", "/opt/a/libcuda.so.1"},
                                      {"libcuda.so.1", "/opt/b/libcuda.so.1"},
                                      {"libcuda.so.1", "relative/libcuda.so.1"}});
  const std::vector<std::string> expected = {"/opt/a/libcuda.so.1", "/opt/b/libcuda.so.1"};
  EXPECT_EQ(expected, paths_in_loader_cache(cache, "libcuda.so.1"));
  EXPECT_EQ(expected, paths_in_loader_cache("an older cache" + cache, "libcuda.so.1"));
}

TEST(DriverSearch, ADamagedCacheContainsNoPaths) {
  EXPECT_TRUE(paths_in_loader_cache("", "libcuda.so.1").empty());
  EXPECT_TRUE(paths_in_loader_cache("glibc-ld.so.cache1.1", "libcuda.so.1").empty());
  const std::string cache = cache_of({{"libcuda.so.1", "/opt/a/libcuda.so.1"}});
  for (std::size_t bytes = 0; bytes < cache.size(); ++bytes) {
    EXPECT_TRUE(paths_in_loader_cache(cache.substr(0, bytes), "libcuda.so.1").empty()) << bytes;
  }
  for (std::size_t at = 20; at < 60; at += 4) {
    std::string broken = cache;
    put_word(broken, at, 0xfffffff0U);
    const std::vector<std::string> paths = paths_in_loader_cache(broken, "libcuda.so.1");
    EXPECT_LE(paths.size(), 1U);
  }
}

}  // namespace
}  // namespace ckpt::shim
