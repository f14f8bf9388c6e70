// SPDX-License-Identifier: Apache-2.0
#include "agent/health/health_record.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>

#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

constexpr std::size_t kMaxHealthBytes = std::size_t{16} << 20;
constexpr std::size_t kCrcBytes = 4;

}  // namespace

std::vector<std::byte> encode_health(const HealthRecord& record) {
  std::vector<std::byte> bytes = wire::encode(record);
  const std::uint32_t crc = wire::crc32(bytes);
  for (unsigned shift = 0; shift < 32; shift += 8)
    bytes.push_back(static_cast<std::byte>(crc >> shift & 0xff));
  return bytes;
}

Result<HealthRecord> decode_health(std::span<const std::byte> bytes) {
  if (bytes.size() < kCrcBytes) return Error(ErrorCode::kCorrupt, "The health record is truncated");
  const auto body = bytes.first(bytes.size() - kCrcBytes);
  std::uint32_t crc = 0;
  for (std::size_t i = 0; i < kCrcBytes; ++i)
    crc |= static_cast<std::uint32_t>(bytes[body.size() + i]) << (8 * i);
  if (crc != wire::crc32(body))
    return Error(ErrorCode::kCorrupt, "The health record's checksum does not match");
  return wire::decode<HealthRecord>(body);
}

Result<HealthRecord> load_health(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return HealthRecord();
  CKPT_TRY(text, read_file(path, kMaxHealthBytes));
  auto record = decode_health(std::as_bytes(std::span(text.data(), text.size())));
  if (record) return record;
  spdlog::error("damaged health record renamed: path {}.damaged reason {}", path, record.error().to_string());
  if (::rename(path.c_str(), (path + ".damaged").c_str()) != 0)
    return Error::from_errno("Cannot set " + path + " aside");
  HealthRecord fresh;
  fresh.next_number = static_cast<std::uint64_t>(wall_clock_ms());
  return fresh;
}

Result<void> save_health(const std::string& path, std::span<const std::byte> bytes) {
  return write_file_durably(path,
                            std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace ckpt::agent
