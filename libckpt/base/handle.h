// SPDX-License-Identifier: Apache-2.0
// UniqueHandle<Traits> is a move-only owner of a plain handle. Traits: `using Value`, `static constexpr Value
// kNull`, `static void close(Value) noexcept`. sizeof(UniqueHandle) == sizeof(Value).
#pragma once

#include <utility>

namespace ckpt {

template <class Traits>
class [[nodiscard]] UniqueHandle {
 public:
  using Value = typename Traits::Value;

  UniqueHandle() noexcept = default;
  explicit UniqueHandle(Value value) noexcept : value_(value) {}
  UniqueHandle(UniqueHandle&& other) noexcept : value_(other.release()) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueHandle(const UniqueHandle&) = delete;
  UniqueHandle& operator=(const UniqueHandle&) = delete;
  ~UniqueHandle() { reset(); }

  [[nodiscard]] Value get() const noexcept { return value_; }
  explicit operator bool() const noexcept { return value_ != Traits::kNull; }
  [[nodiscard]] Value release() noexcept { return std::exchange(value_, Traits::kNull); }
  void reset(Value value = Traits::kNull) noexcept {
    Value old = std::exchange(value_, value);
    if (old != Traits::kNull) Traits::close(old);
  }

 private:
  Value value_ = Traits::kNull;
};

}  // namespace ckpt
