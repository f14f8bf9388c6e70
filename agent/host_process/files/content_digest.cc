// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/files/content_digest.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <tuple>
#include <vector>

#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kReadAtOnce = std::size_t{1} << 20;
constexpr std::uint64_t kSampleBytes = 64u << 10;
constexpr int kSamples = 64;
constexpr std::size_t kMaxKept = 8192;
// The time without a write after which a modification time is trusted. Memory that is mapped for writing may
// change without a new modification time until it is written back.
constexpr time_t kSettledSeconds = 120;

// Identifies one state of a file's content. The fields are device, inode, time of the content's change, time
// of the inode's change, and length.
using Version = std::tuple<dev_t, ino_t, time_t, long, time_t, long, std::uint64_t>;

class KeptDigests {
 public:
  std::string find(const Version& version) {
    const std::lock_guard lock(mutex_);
    const auto at = kept_.find(version);
    return at == kept_.end() ? std::string() : at->second;
  }
  void keep(const Version& version, const std::string& digest) {
    const std::lock_guard lock(mutex_);
    if (kept_.size() >= kMaxKept) kept_.clear();
    kept_[version] = digest;
  }

 private:
  std::mutex mutex_;
  std::map<Version, std::string> kept_;
};

KeptDigests& kept_digests() {
  static KeptDigests digests;
  return digests;
}

Version version_of(const struct stat& facts, std::uint64_t bytes) {
  return {
      facts.st_dev,          facts.st_ino, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec, facts.st_ctim.tv_sec,
      facts.st_ctim.tv_nsec, bytes};
}

bool is_settled(const struct stat& facts) {
  return std::max(facts.st_mtim.tv_sec, facts.st_ctim.tv_sec) + kSettledSeconds < ::time(nullptr);
}

// Opens a regular file that has at least `bytes` bytes.
UniqueFd open_content(const std::string& path, std::uint64_t bytes, struct stat& facts) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file || ::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode) ||
      static_cast<std::uint64_t>(facts.st_size) < bytes)
    return {};
  return file;
}

}  // namespace

class ContentReader::Sum {
 public:
  Sum() : context_(EVP_MD_CTX_new()), buffer_(kReadAtOnce) {
    good_ = context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1;
  }
  std::vector<unsigned char>& buffer() { return buffer_; }
  void add(std::size_t bytes) {
    good_ = good_ && EVP_DigestUpdate(context_.get(), buffer_.data(), bytes) == 1;
  }
  std::string text() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> value{};
    unsigned length = 0;
    if (!good_ || EVP_DigestFinal_ex(context_.get(), value.data(), &length) != 1) return {};
    constexpr char kDigits[] = "0123456789abcdef";
    std::string digits;
    for (unsigned i = 0; i < length; ++i) {
      digits += kDigits[value[i] >> 4];
      digits += kDigits[value[i] & 15];
    }
    return digits;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
  std::vector<unsigned char> buffer_;
  bool good_ = false;
};

bool ContentReader::add(Sum& sum, int fd, std::uint64_t from, std::uint64_t bytes) {
  while (bytes > 0) {
    if (std::chrono::steady_clock::now() > end_) return false;
    const ssize_t got = ::pread(fd, sum.buffer().data(), std::min<std::uint64_t>(bytes, kReadAtOnce),
                                static_cast<off_t>(from));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    sum.add(static_cast<std::size_t>(got));
    from += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
  return true;
}

std::string ContentReader::whole(const std::string& path, std::uint64_t bytes) {
  struct stat facts {};
  const UniqueFd file = open_content(path, bytes, facts);
  if (!file) return {};
  const Version version = version_of(facts, bytes);
  if (std::string known = kept_digests().find(version); !known.empty()) return known;
  if (!reads_whole(bytes)) return {};
  left_ -= bytes;
  Sum sum;
  if (!add(sum, file.get(), 0, bytes)) return {};
  std::string digest = sum.text();
  if (is_settled(facts) && !digest.empty()) kept_digests().keep(version, digest);
  return digest;
}

std::string ContentReader::sampled(const std::string& path, std::uint64_t bytes) {
  struct stat facts {};
  const UniqueFd file = open_content(path, bytes, facts);
  if (!file || bytes < 2 * kSampleBytes) return {};
  std::mt19937_64 places(seed_ ^ bytes);
  Sum sum;
  bool good =
      add(sum, file.get(), 0, kSampleBytes) && add(sum, file.get(), bytes - kSampleBytes, kSampleBytes);
  for (int i = 0; good && i < kSamples; ++i)
    good = add(sum, file.get(), places() % (bytes - kSampleBytes), kSampleBytes);
  return good ? sum.text() : std::string();
}

}  // namespace ckpt::agent::host
