// SPDX-License-Identifier: Apache-2.0
// The program's driver calls, written to a file as they end (GPUMIGRATE_TRACE=FILE; the format: README.md). Off by
// default: a call then reads one flag.
//   if (tracing()) { read_before(values, count); ...the call...; trace_call("cuMemAlloc_v2", result, began, values, count); }
// What a pointer points to is read by the kernel, so a pointer that the driver does not read may be wrong.
// Threads: any. Ownership: none. Errors: a file that cannot be written ends the trace; the program runs on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "libckpt/base/clock.h"

namespace ckpt::shim {

inline constinit std::atomic<bool> g_tracing{false};
[[nodiscard]] inline bool tracing() noexcept {
  return g_tracing.load(std::memory_order_acquire);
}

// The file's name without its end, ".PID"; null where the environment asks for no trace.
[[nodiscard]] const char* trace_file() noexcept;
// `driver_version`: as cuDriverGetVersion has it; 0: unknown.
void start_trace(const char* file, int driver_version);

// An argument. Its letter is the one in the file.
struct TraceValue {
  enum Kind : char {
    kNumber = 'n',  // integers, enumerators, bits of floating point numbers
    kHandle = 'h',  // of the driver's own objects
    kOpaque = 'v',  // memory of unknown size, and functions
    kText = 's',
    kData = 'd',    // `value` points to `bytes` bytes
    kStruct = 'b',  // passed by value: `value` is where it lies during trace_call
  };
  Kind kind = kNumber;
  std::uint32_t bytes = 0;
  std::uint64_t value = 0;
  std::uint64_t before = 0;  // kData of at most 8 bytes: what was there before the call
  bool has_before = false;
};

inline constexpr std::size_t kMaxTracedData = 512;

template <class T>
concept Complete = requires {
  sizeof(T);
};

inline TraceValue value_of(TraceValue::Kind kind, std::size_t bytes, std::uint64_t value) noexcept {
  TraceValue made;
  made.kind = kind;
  made.bytes = static_cast<std::uint32_t>(bytes);
  made.value = value;
  return made;
}

template <class T>
TraceValue trace_value(const T& argument) noexcept {
  if constexpr (std::is_enum_v<T>) {
    return trace_value(static_cast<std::underlying_type_t<T>>(argument));
  } else if constexpr (std::is_integral_v<T>) {
    return value_of(TraceValue::kNumber, sizeof(T), static_cast<std::uint64_t>(argument));
  } else if constexpr (std::is_floating_point_v<T>) {
    std::uint64_t bits = 0;
    __builtin_memcpy(&bits, &argument, sizeof argument);
    return value_of(TraceValue::kNumber, sizeof(T), bits);
  } else if constexpr (std::is_pointer_v<T>) {
    using Pointee = std::remove_cv_t<std::remove_pointer_t<T>>;
    const auto value = reinterpret_cast<std::uint64_t>(argument);
    if constexpr (std::is_same_v<T, const char*>) {
      return value_of(TraceValue::kText, 0, value);
    } else if constexpr (std::is_void_v<Pointee> || std::is_function_v<Pointee> ||
                         std::is_same_v<Pointee, char>) {
      return value_of(TraceValue::kOpaque, 0, value);
    } else if constexpr (!Complete<Pointee>) {
      return value_of(TraceValue::kHandle, 0, value);
    } else {
      constexpr std::size_t kSize =
          sizeof(Pointee);  // NOLINT(bugprone-sizeof-expression): a pointer's is meant
      constexpr std::size_t kBytes = kSize < kMaxTracedData ? kSize : kMaxTracedData;
      return value_of(TraceValue::kData, kBytes, value);
    }
  } else {
    return value_of(TraceValue::kStruct, sizeof(T), reinterpret_cast<std::uint64_t>(&argument));
  }
}

// Reads, before the call, the data behind pointers, which the driver may replace.
void read_before(TraceValue* values, std::size_t count) noexcept;
// `name`: a string literal. What output pointers point to is read now, after the call.
void trace_call(const char* name, int result, Nanos began, const TraceValue* values,
                std::size_t count) noexcept;

}  // namespace ckpt::shim
