// SPDX-License-Identifier: Apache-2.0
// An argument of a replayed call, made from a traced one: Slot<T> for a parameter of type T.
//   Slot<CUdeviceptr*> slot(traced, manner, objects);
//   if (slot.obstacle() == nullptr) { ...f(slot.get())...; slot.learn(objects, manner, traced); }
// Threads: one. Ownership: a slot holds what its argument points to.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <type_traits>

#include "tools/replay/objects.h"
#include "tools/replay/trace_file.h"

namespace ckpt::replay {

// The facts about a function that its parameters' types do not tell.
struct Manner {
  std::uint64_t scratch_bytes = 0;     // its memory of unknown size has at most so many bytes; 0: not known
  bool addresses_may_be_host = false;  // its device addresses may be any of the program's
  bool outputs_are_ranges = false;     // its addresses begin memory of the program's
  std::uint64_t range_bytes = 1;       // of such a range
  const char* text = nullptr;          // in place of the traced text
};

// Reasons why a call cannot be made again.
inline constexpr const char* kOfAnotherKind = "its parameters have other types here";
inline constexpr const char* kMissing = "it needs what a call that was left out had made";
inline constexpr const char* kOfUnknownSize = "it is given host memory of unknown size";
inline constexpr const char* kUnread = "the trace does not have all that it was given";
inline constexpr const char* kOfAddresses = "it is given a structure of addresses";

template <class T>
concept Complete = requires {
  sizeof(T);
};

// Structures that hold addresses or handles: their bytes mean nothing in another process.
template <class T>
concept HoldsAddresses = std::is_same_v<T, CUDA_MEMCPY2D> || std::is_same_v<T, CUDA_MEMCPY3D> ||
    std::is_same_v<T, CUDA_MEMCPY3D_PEER> || std::is_same_v<T, CUDA_KERNEL_NODE_PARAMS> ||
    std::is_same_v<T, CUDA_KERNEL_NODE_PARAMS_v1> || std::is_same_v<T, CUDA_MEMSET_NODE_PARAMS> ||
    std::is_same_v<T, CUDA_HOST_NODE_PARAMS> || std::is_same_v<T, CUDA_MEM_ALLOC_NODE_PARAMS> ||
    std::is_same_v<T, CUDA_BATCH_MEM_OP_NODE_PARAMS> || std::is_same_v<T, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS> ||
    std::is_same_v<T, CUDA_EXT_SEM_WAIT_NODE_PARAMS> || std::is_same_v<T, CUgraphNodeParams> ||
    std::is_same_v<T, CUDA_LAUNCH_PARAMS> || std::is_same_v<T, CUlaunchConfig> ||
    std::is_same_v<T, CUDA_RESOURCE_DESC> || std::is_same_v<T, CUDA_EXTERNAL_MEMORY_HANDLE_DESC> ||
    std::is_same_v<T, CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC> || std::is_same_v<T, CUstreamBatchMemOpParams> ||
    std::is_same_v<T, CUarrayMapInfo> || std::is_same_v<T, CUcheckpointRestoreArgs>;

inline std::uint64_t word_of(const std::vector<unsigned char>& bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), std::min(bytes.size(), sizeof word));
  return word;
}

// Numbers. Of the driver's types `unsigned long long` alone is an address (CUdeviceptr) or a handle of memory.
template <class T>
class Slot {
 public:
  Slot(const TracedValue& traced, const Manner& manner, Objects& objects) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    if (traced.kind != 'n') obstacle_ = kOfAnotherKind;
    std::uint64_t value = traced.value;
    if constexpr (std::is_same_v<T, unsigned long long>) {
      if (objects.is_missing(value)) obstacle_ = kMissing;
      if (const auto own = objects.address(value))
        value = *own;
      else if (manner.addresses_may_be_host && value != 0)
        value = reinterpret_cast<std::uint64_t>(objects.scratch(manner.scratch_bytes));
    }
    if constexpr (std::is_floating_point_v<T>)
      std::memcpy(&value_, &value, sizeof value_);
    else
      value_ = static_cast<T>(value);
  }
  [[nodiscard]] const char* obstacle() const { return obstacle_; }
  T get() { return value_; }
  void learn(Objects&, const Manner&, const TracedValue&) {}

 private:
  const char* obstacle_ = nullptr;
  T value_{};
};

// Structures by value.
template <class T>
requires std::is_class_v<T> || std::is_union_v<T>
class Slot<T> {
 public:
  Slot(const TracedValue& traced, const Manner&, Objects&) {
    if (traced.kind != 'b' || traced.data.size() != sizeof(T))
      obstacle_ = kOfAnotherKind;
    else
      std::memcpy(&value_, traced.data.data(), sizeof(T));
  }
  [[nodiscard]] const char* obstacle() const { return obstacle_; }
  T get() { return value_; }
  void learn(Objects&, const Manner&, const TracedValue&) {}

 private:
  const char* obstacle_ = nullptr;
  T value_{};
};

// The driver's objects.
template <class P>
requires(!Complete<P> && !std::is_void_v<P> && !std::is_function_v<P>) class Slot<P*> {
 public:
  Slot(const TracedValue& traced, const Manner&, Objects& objects) : value_(objects.handle(traced.value)) {
    if (traced.kind != 'h') obstacle_ = kOfAnotherKind;
    if (objects.is_missing(traced.value)) obstacle_ = kMissing;
  }
  [[nodiscard]] const char* obstacle() const { return obstacle_; }
  P* get() { return reinterpret_cast<P*>(value_); }
  void learn(Objects&, const Manner&, const TracedValue&) {}

 private:
  const char* obstacle_ = nullptr;
  std::uint64_t value_;
};

// Host memory.
template <class P>
requires(std::is_void_v<P> || std::is_same_v<P, char>) class Slot<P*> {
 public:
  Slot(const TracedValue& traced, const Manner& manner, Objects& objects) {
    if (traced.kind != 'v') obstacle_ = kOfAnotherKind;
    if (objects.is_missing(traced.value)) obstacle_ = kMissing;
    if (obstacle_ != nullptr || traced.value == 0) return;
    if (const auto own = objects.address(traced.value))
      value_ = reinterpret_cast<P*>(*own);
    else if (manner.scratch_bytes > 0)
      value_ = static_cast<P*>(objects.scratch(manner.scratch_bytes));
    if (value_ == nullptr) obstacle_ = kOfUnknownSize;
  }
  [[nodiscard]] const char* obstacle() const { return obstacle_; }
  P* get() { return value_; }
  void learn(Objects&, const Manner&, const TracedValue&) {}

 private:
  const char* obstacle_ = nullptr;
  P* value_ = nullptr;
};

template <>
class Slot<const char*> {
 public:
  Slot(const TracedValue& traced, const Manner& manner, Objects&)
      : is_null_(traced.value == 0), text_(traced.data.begin(), traced.data.end()) {
    if (traced.kind != 's') obstacle_ = kOfAnotherKind;
    if (!traced.has_data && !is_null_) obstacle_ = kUnread;
    if (manner.text != nullptr) text_ = manner.text;
  }
  [[nodiscard]] const char* obstacle() const { return obstacle_; }
  const char* get() { return is_null_ ? nullptr : text_.c_str(); }
  void learn(Objects&, const Manner&, const TracedValue&) {}

 private:
  const char* obstacle_ = nullptr;
  bool is_null_;
  std::string text_;
};

// Callbacks: they do nothing.
template <class R, class... A>
class Slot<R (*)(A...)> {
 public:
  Slot(const TracedValue& traced, const Manner&, Objects&)
      : obstacle_(traced.kind == 'v' ? nullptr : kOfAnotherKind), is_null_(traced.value == 0) {}
  [[nodiscard]] const char* obstacle() const { return obstacle_; }
  R (*get())(A...) { return is_null_ ? nullptr : &nothing; }
  void learn(Objects&, const Manner&, const TracedValue&) {}

 private:
  static R nothing(A...) { return R(); }
  const char* obstacle_;
  bool is_null_;
};

// Everything else that is pointed to: a copy of what was traced, and zeros behind it.
template <class P>
requires(Complete<P> && !std::is_same_v<std::remove_const_t<P>, char>) class Slot<P*> {
  using T = std::remove_const_t<P>;
  static constexpr bool kIsHandle = std::is_pointer_v<T> && !Complete<std::remove_pointer_t<T>> &&
                                    !std::is_void_v<std::remove_pointer_t<T>>;
  static constexpr bool kIsAddress = std::is_same_v<T, unsigned long long>;

 public:
  Slot(const TracedValue& traced, const Manner&, Objects& objects) {
    is_null_ = traced.value == 0;
    if (traced.kind != 'd') obstacle_ = kOfAnotherKind;
    if (HoldsAddresses<T> && !is_null_) obstacle_ = kOfAddresses;
    if (obstacle_ != nullptr || is_null_) return;
    const std::vector<unsigned char>& given =
        std::is_const_v<P> || traced.before.empty() ? traced.data : traced.before;
    if (!traced.has_data || given.size() > memory_.size()) obstacle_ = kUnread;
    if (obstacle_ != nullptr) return;
    std::uint64_t word = word_of(given);
    if constexpr (std::is_pointer_v<T>) {
      if (kIsHandle && std::is_const_v<P> && objects.is_missing(word)) obstacle_ = kMissing;
      word = kIsHandle && std::is_const_v<P> ? objects.handle(word) : 0;
      std::memcpy(memory_.data(), &word, sizeof word);
    } else if constexpr (kIsAddress) {
      word = objects.address(word).value_or(word);
      std::memcpy(memory_.data(), &word, sizeof word);
    } else {
      std::memcpy(memory_.data(), given.data(), given.size());
    }
  }
  [[nodiscard]] const char* obstacle() const { return obstacle_; }
  P* get() { return is_null_ ? nullptr : reinterpret_cast<P*>(memory_.data()); }
  void learn(Objects& objects, const Manner& manner, const TracedValue& traced) {
    if constexpr (std::is_const_v<P> || !(kIsHandle || kIsAddress || std::is_same_v<T, void*>)) return;
    if (is_null_ || traced.data.size() != sizeof(std::uint64_t)) return;
    std::uint64_t own = 0;
    std::memcpy(&own, memory_.data(), sizeof own);
    if (kIsHandle)
      objects.learn_handle(word_of(traced.data), own);
    else if (manner.outputs_are_ranges)
      objects.learn_range(word_of(traced.data), own, manner.range_bytes);
  }

 private:
  const char* obstacle_ = nullptr;
  bool is_null_ = false;
  alignas(128) std::array<unsigned char, 4096> memory_{};
};

}  // namespace ckpt::replay
