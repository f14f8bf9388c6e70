// SPDX-License-Identifier: Apache-2.0
// The only error type of the project. An Error describes what failed, on what and why. It stores the native
// code of its origin (CUresult, ucs_status_t, errno, nvmlReturn_t) and a chain of causes. Codes are grouped
// by the required reaction of the caller.
// Threads: a value type; causes are immutable and shared. No function here fails.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ckpt {

enum class ErrorCode : std::uint8_t {
  kInvalidArgument = 1,  // the caller's request is malformed: refused, nothing was changed
  kNotFound,             // the named object does not exist: refused
  kRefused,       // well-formed, but not possible here and now (no memory at the target, mismatch): refused
  kNotSupported,  // this build, driver or node cannot do it
  kUnavailable,   // a peer or service cannot be reached: retry later
  kTimedOut,      // a deadline passed: the operation's effect may be unknown
  kAborted,       // canceled by request, or stopped by an earlier failure of the same operation
  kOutOfMemory,   // device or host memory is exhausted
  kCorrupt,       // data failed a check (fingerprint, CRC, bounds): never use it
  kProtocol,      // a peer sent data that it must not send: drop the connection
  kDevice,        // the GPU or its context failed, and the context is no longer usable
  kIo,            // the operating system refused an I/O operation
  kInternal,      // a bug in this program
};
[[nodiscard]] constexpr std::string_view to_string(ErrorCode code) noexcept;

// The origin of a native code.
enum class ErrorDomain : std::uint8_t { kNone, kErrno, kCuda, kUcs, kNvml, kSqlite };
[[nodiscard]] constexpr std::string_view to_string(ErrorDomain domain) noexcept;

class [[nodiscard]] Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}
  Error(ErrorCode code, ErrorDomain domain, std::int64_t native, std::string message)
      : code_(code), domain_(domain), native_(native), message_(std::move(message)) {}

  // Returns an Error that `what` failed with the current (or given) errno. Maps ENOMEM, ETIMEDOUT, ... to
  // codes, and others to kIo.
  static Error from_errno(std::string what);
  static Error from_errno(int error_number, std::string what);

  // Returns this error with `cause` as its reason.
  [[nodiscard]] Error caused_by(Error cause) &&;

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  [[nodiscard]] ErrorDomain domain() const noexcept { return domain_; }
  [[nodiscard]] std::int64_t native() const noexcept { return native_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }
  [[nodiscard]] const Error* cause() const noexcept { return cause_.get(); }

  // Returns one line: "message (CUDA 2): cause message (errno 12 Cannot allocate memory)".
  [[nodiscard]] std::string to_string() const;

 private:
  ErrorCode code_;
  ErrorDomain domain_ = ErrorDomain::kNone;
  std::int64_t native_ = 0;
  std::string message_;
  std::shared_ptr<const Error> cause_;
};

constexpr std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid-argument";
    case ErrorCode::kNotFound:
      return "not-found";
    case ErrorCode::kRefused:
      return "refused";
    case ErrorCode::kNotSupported:
      return "not-supported";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kTimedOut:
      return "timed-out";
    case ErrorCode::kAborted:
      return "aborted";
    case ErrorCode::kOutOfMemory:
      return "out-of-memory";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kProtocol:
      return "protocol";
    case ErrorCode::kDevice:
      return "device";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

constexpr std::string_view to_string(ErrorDomain domain) noexcept {
  switch (domain) {
    case ErrorDomain::kNone:
      return "";
    case ErrorDomain::kErrno:
      return "errno";
    case ErrorDomain::kCuda:
      return "CUDA";
    case ErrorDomain::kUcs:
      return "UCX";
    case ErrorDomain::kNvml:
      return "NVML";
    case ErrorDomain::kSqlite:
      return "SQLite";
  }
  return "";
}

}  // namespace ckpt
