// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/track/fingerprint_stream.h"

#include <algorithm>
#include <future>
#include <system_error>
#include <thread>
#include <vector>

#include "libckpt/base/machine/cores.h"

namespace ckpt::track {
namespace {

constexpr std::uint64_t kMuch = std::uint64_t{16}
                                << 20;  // the bytes that justify another thread, which takes as long to start
                                        // as hashing some hundred KiB
constexpr unsigned kMaxThreads = 4;

std::uint64_t subtract_mod(std::uint64_t a, std::uint64_t b) {
  return add_mod(a, kPrime - b);
}

// A piece within a longer message. `sum` is its fingerprint without the leading 1 and the length. `factor`
// multiplies the sum of the earlier pieces.
struct Link {
  std::uint64_t factor[2] = {1, 1};  // the values point^n of both lanes
  std::uint64_t sum[2] = {0, 0};     // the sum multiplied by point
};

// Returns the link of a piece. `bytes` must be at most kMaxChunkBytes, because the table of powers ends
// there.
Link link_of(const FingerprintTables& tables, const Fingerprint& piece, std::uint64_t bytes) {
  const std::uint64_t blocks = mark_count(bytes);
  const std::uint64_t value[2] = {piece.lo, piece.hi};
  Link link;
  for (int a = 0; a < 2; ++a) {
    link.factor[a] = tables.power[a][blocks];
    link.sum[a] = subtract_mod(subtract_mod(value[a], bytes), multiply_mod(link.factor[a], tables.point[a]));
  }
  return link;
}

void chain(Link& before, const Link& behind) {
  for (int a = 0; a < 2; ++a) {
    before.sum[a] = add_mod(multiply_mod(before.sum[a], behind.factor[a]), behind.sum[a]);
    before.factor[a] = multiply_mod(before.factor[a], behind.factor[a]);
  }
}

Link link_over(const FingerprintParams& params, std::span<const std::byte> bytes) {
  Link link;
  while (!bytes.empty()) {
    const std::span<const std::byte> piece =
        bytes.first(std::min<std::uint64_t>(bytes.size(), kMaxChunkBytes));
    chain(link, link_of(params.tables(), fingerprint(params, piece), piece.size()));
    bytes = bytes.subspan(piece.size());
  }
  return link;
}

std::future<Link> begin(const FingerprintParams& params, std::span<const std::byte> bytes) {
  const auto compute = [&params, bytes] { return link_over(params, bytes); };
  try {
    return std::async(std::launch::async, compute);
  } catch (const std::system_error&) {  // no thread is available
    return std::async(std::launch::deferred, compute);
  }
}

}  // namespace

FingerprintStream::FingerprintStream(std::shared_ptr<const FingerprintParams> params)
    : params_(std::move(params)), h_{params_->tables().point[0], params_->tables().point[1]} {}

void FingerprintStream::add(std::span<const std::byte> piece) {
  const Link link = link_over(*params_, piece);
  for (int a = 0; a < 2; ++a) h_[a] = add_mod(multiply_mod(h_[a], link.factor[a]), link.sum[a]);
  bytes_ += piece.size();
}

Fingerprint FingerprintStream::value() const noexcept {
  const std::uint64_t length = reduce_once(bytes_ & kPrime);
  return {add_mod(h_[0], length), add_mod(h_[1], length)};
}

Fingerprint fingerprint_of_much(const FingerprintParams& params, std::span<const std::byte> bytes) {
  const unsigned threads = std::min(usable_cores(), kMaxThreads);
  if (threads == 1 || bytes.size() < kMuch) return fingerprint(params, bytes);
  const std::uint64_t share = (bytes.size() / threads + kMaxChunkBytes) / kMaxChunkBytes * kMaxChunkBytes;
  std::vector<std::future<Link>> links;
  for (std::uint64_t at = 0; at < bytes.size(); at += share)
    links.push_back(begin(params, bytes.subspan(at, std::min(share, bytes.size() - at))));
  Link all;
  for (std::future<Link>& link : links) chain(all, link.get());
  const std::uint64_t length = reduce_once(bytes.size() & kPrime);
  std::uint64_t value[2];
  for (int a = 0; a < 2; ++a)
    value[a] = add_mod(add_mod(multiply_mod(params.tables().point[a], all.factor[a]), all.sum[a]), length);
  return {value[0], value[1]};
}

}  // namespace ckpt::track
