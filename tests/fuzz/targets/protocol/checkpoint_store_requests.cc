// SPDX-License-Identifier: Apache-2.0
// Another node's requests to a checkpoint store: {'m', a message's head} or {'p', a path}. A decoded head
// survives encoding and decoding. An accepted path stays within the store, and within the one job.
#include <algorithm>
#include <filesystem>
#include <string>

#include "libckpt/store/peer/file_messages.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

template <class M>
void check_message(std::span<const std::byte> bytes) {
  const auto decoded = wire::decode<M>(bytes);
  if (!decoded) return;
  const auto once = wire::encode(*decoded);
  const auto again = wire::decode<M>(once);
  FUZZ_CHECK(again.has_value());
  FUZZ_CHECK(wire::encode(*again) == once);
}

void check_name(const std::string& path) {
  if (!checkpoint_store::check_path(path, "job.j1.c")) return;
  const std::filesystem::path whole = (std::filesystem::path("/v") / path).lexically_normal();
  const std::string text = whole.string();
  FUZZ_CHECK(path.empty() || text == "/v/" + path);
  FUZZ_CHECK(std::count(path.begin(), path.end(), '/') <= 3);
  if (path.starts_with("jobs/")) FUZZ_CHECK(path == "jobs/job.j1.c" || path.starts_with("jobs/job.j1.c/"));
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt;
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  if (data[0] == 'p') {
    fuzz::check_name(std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
    return 0;
  }
  fuzz::check_message<checkpoint_store::FileHello>(bytes);
  fuzz::check_message<checkpoint_store::FileRequest>(bytes);
  fuzz::check_message<checkpoint_store::FileReply>(bytes);
  return 0;
}
