// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/criu_records.h"

#include <cstring>

namespace ckpt::agent::host {

Error strange_image(const std::string& what) {
  return {ErrorCode::kCorrupt, "CRIU's image has an unexpected format: " + what};
}

std::uint32_t word_at(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  if (bytes.size() >= at + sizeof value) std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

void put_word(std::string& to, std::uint32_t value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

Result<std::vector<std::string>> records_of(const std::string& image, std::size_t begin) {
  std::vector<std::string> records;
  for (std::size_t at = begin; at < image.size();) {
    const std::uint32_t bytes = word_at(image, at);
    if (image.size() - at < sizeof bytes || bytes > image.size() - at - sizeof bytes)
      return strange_image("a cut record");
    records.push_back(image.substr(at + sizeof bytes, bytes));
    at += sizeof bytes + bytes;
  }
  if (records.empty()) return strange_image("no record");
  return records;
}

void put_record(std::string& image, const std::string& record) {
  put_word(image, static_cast<std::uint32_t>(record.size()));
  image += record;
}

}  // namespace ckpt::agent::host
