// SPDX-License-Identifier: Apache-2.0
// Frames, which a lane reads before anything else: {bytes of the payload u32, header}. The input may also be
// an address of a lane, which the other node's agent sends. An accepted frame is inside its bytes. An
// accepted address is written in the same form.
#include "libckpt/datapath/transport/frames.h"
#include "libckpt/datapath/transport/tls_socket.h"
#include "libckpt/datapath/transport/ucx_context.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt;
  fuzz::Input input(data, size);
  const auto payload_bytes = input.number<std::uint32_t>();
  const auto header = input.rest();
  const auto frame = transport::parse_frame(header.data(), header.size(), payload_bytes);
  if (frame) {
    const transport::FrameView& view = *frame;
    FUZZ_CHECK(view.header.size() == header.size() - sizeof(transport::Frame));
    FUZZ_CHECK(view.header.empty() || &view.header.back() == &header.back());
    const bool same_host = view.frame.kind == transport::FrameKind::kSameHost;
    FUZZ_CHECK(payload_bytes == (same_host ? sizeof(std::uint64_t) : view.frame.payload_bytes));
    FUZZ_CHECK(view.frame.payload_bytes <= transport::kMaxPayloadBytes);
  }
  const std::string text = fuzz::Input(data, size).text();
  const auto tls_address = transport::parse_tls_address(text);
  if (tls_address) FUZZ_CHECK(transport::format_tls_address(*tls_address) == text);
  const auto address = transport::parse_ucx_address(text);
  if (address) FUZZ_CHECK(transport::format_ucx_address(*address) == text);
  return 0;
}
