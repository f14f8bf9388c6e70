// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/error.h"

#include <cerrno>
#include <cstring>

namespace ckpt {
namespace {

ErrorCode code_of_errno(int error_number) {
  switch (error_number) {
    case ENOMEM:
      return ErrorCode::kOutOfMemory;
    case ETIMEDOUT:
      return ErrorCode::kTimedOut;
    case ENOENT:
      return ErrorCode::kNotFound;
    case EINVAL:
      return ErrorCode::kInvalidArgument;
    case ECONNREFUSED:
    case ECONNRESET:
    case ENOTCONN:
    case EPIPE:
      return ErrorCode::kUnavailable;
    default:
      return ErrorCode::kIo;
  }
}

}  // namespace

Error Error::from_errno(std::string what) {
  return from_errno(errno, std::move(what));
}

Error Error::from_errno(int error_number, std::string what) {
  return Error(code_of_errno(error_number), ErrorDomain::kErrno, error_number, std::move(what));
}

Error Error::caused_by(Error cause) && {
  cause_ = std::make_shared<const Error>(std::move(cause));
  return std::move(*this);
}

std::string Error::to_string() const {
  std::string text = message_;
  if (domain_ != ErrorDomain::kNone) {
    text += " (" + std::string(ckpt::to_string(domain_)) + " " + std::to_string(native_);
    if (domain_ == ErrorDomain::kErrno) {
      char buffer[128];
      text += std::string(" ") + strerror_r(static_cast<int>(native_), buffer, sizeof buffer);
    }
    text += ")";
  }
  if (cause_) text += ": " + cause_->to_string();
  return text;
}

}  // namespace ckpt
