// SPDX-License-Identifier: Apache-2.0
// Shared parts of the fuzz targets: a reader of the fuzzer's bytes, and the report that a property of a
// target is violated.
//
// A target is one file that defines LLVMFuzzerTestOneInput. Built with -DGPUMIGRATE_FUZZ=ON libFuzzer calls
// it; in every other build replay.cc calls it once for each input of its corpus. It must not depend on
// anything but the input.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

// Ends the run like a crash, and prints the condition that was false.
#define FUZZ_CHECK(condition)                                                             \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace ckpt::fuzz {

// A reader that takes values from the front of the input. After the input's end every value is 0 or empty.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : bytes_(std::as_bytes(std::span(data, size))) {}

  template <class T>
  T number() {
    T value{};
    const auto taken = bytes(sizeof value);
    if (!taken.empty()) std::memcpy(&value, taken.data(), taken.size());
    return value;
  }
  std::span<const std::byte> bytes(std::size_t count) {
    const auto taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }
  std::span<const std::byte> rest() { return bytes(bytes_.size()); }
  std::string text() {
    const auto taken = rest();
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace ckpt::fuzz
