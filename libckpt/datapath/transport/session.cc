// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/session.h"

namespace ckpt::transport {

Result<void> check_sizes(std::size_t header_bytes, std::size_t payload_bytes) {
  if (header_bytes > kMaxHeaderBytes)
    return Error(ErrorCode::kInvalidArgument, "A message header of " + std::to_string(header_bytes) +
                                                  " bytes is longer than " + std::to_string(kMaxHeaderBytes));
  if (payload_bytes > kMaxPayloadBytes)
    return Error(ErrorCode::kInvalidArgument, "A payload of " + std::to_string(payload_bytes) +
                                                  " bytes is longer than " +
                                                  std::to_string(kMaxPayloadBytes));
  return ok();
}

bool tokens_equal(const SessionToken& a, const SessionToken& b) noexcept {
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

Error refused_payload(std::size_t payload_bytes) {
  return Error(ErrorCode::kProtocol, "The peer sent a payload of " + std::to_string(payload_bytes) +
                                         " bytes for which there is no buffer");
}

Error never_opened() {
  return Error(ErrorCode::kUnavailable,
               "The lane was not opened: no process listens at that address, or the listening process does "
               "not know this session token");
}

}  // namespace ckpt::transport
