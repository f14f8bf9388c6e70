// SPDX-License-Identifier: Apache-2.0
// Wire messages that have a value in every field.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>

namespace ckpt::fuzz {

// An archive that puts a value into every field.
class Filler {
 public:
  template <class... T>
  void operator()(T&... values) {
    (fill(values), ...);
  }

 private:
  template <class T>
  void fill(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = true;
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(1);
    } else if constexpr (std::is_same_v<T, std::byte>) {
      value = std::byte{7};
    } else if constexpr (std::is_arithmetic_v<T>) {
      value = static_cast<T>(++next_);
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = "text";
    } else if constexpr (requires { value.emplace_back(); }) {
      value.resize(2);
      for (auto& element : value) fill(element);
    } else if constexpr (requires { value.emplace(); }) {
      fill(value.emplace());
    } else if constexpr (requires { value.begin(); }) {
      for (auto& element : value) fill(element);
    } else {
      wire::apply_fields(value, *this);
    }
  }
  unsigned next_ = 0;
};

template <class M>
M filled() {
  M message;
  Filler filler;
  wire::apply_fields(message, filler);
  return message;
}

}  // namespace ckpt::fuzz
