// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/wire/codec.h"

#include <array>
#include <bit>

namespace ckpt::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "the archives copy integers in memory byte order");

constexpr unsigned kDeepestNesting = 16;

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0xedb8'8320U ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

template <class T>
T load_at(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void store(std::vector<std::byte>& out, T value) {
  const auto* p = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), p, p + sizeof value);
}

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes) noexcept {
  std::uint32_t c = 0xffff'ffffU;
  for (std::byte b : bytes) c = kCrcTable[(c ^ static_cast<std::uint32_t>(b)) & 0xffU] ^ (c >> 8);
  return ~c;
}

std::string_view to_string(FrameType type) noexcept {
  switch (type) {
    case FrameType::kInvalid:
      return "invalid";
#define CKPT_FRAME_TYPE(number, name, limit) \
  case FrameType::name:                      \
    return std::string_view(#name).substr(1);
#include "libckpt/protocol/wire/frame_types.def"
#undef CKPT_FRAME_TYPE
  }
  return "unknown";
}

bool is_known(FrameType type) noexcept {
  switch (type) {
    case FrameType::kInvalid:
      return false;
#define CKPT_FRAME_TYPE(number, name, limit) \
  case FrameType::name:                      \
    return true;
#include "libckpt/protocol/wire/frame_types.def"
#undef CKPT_FRAME_TYPE
  }
  return false;
}

std::size_t max_body_bytes(FrameType type) noexcept {
  switch (type) {
    case FrameType::kInvalid:
      return 0;
#define CKPT_FRAME_TYPE(number, name, limit)             \
  case FrameType::name:                                  \
    static_assert(std::size_t{limit} <= kMaxFrameBytes); \
    return limit;
#include "libckpt/protocol/wire/frame_types.def"
#undef CKPT_FRAME_TYPE
  }
  return 0;
}

Result<FrameHeader> parse_header(std::span<const std::byte> bytes) {
  if (bytes.size() != kFrameHeaderBytes)
    return Error(ErrorCode::kProtocol,
                 "A frame header has " + std::to_string(bytes.size()) + " bytes instead of 24");
  if (load_at<std::uint32_t>(bytes, 0) != kFrameMagic)
    return Error(ErrorCode::kProtocol,
                 "A frame does not have our magic number: the peer is not a gpumigrate process");
  const auto version = load_at<std::uint16_t>(bytes, 4);
  if (version != kFrameVersion)
    return Error(ErrorCode::kNotSupported, "Frame version " + std::to_string(version) +
                                               ", but this build uses " + std::to_string(kFrameVersion));
  FrameHeader header;
  header.type = static_cast<FrameType>(load_at<std::uint16_t>(bytes, 6));
  header.body_bytes = load_at<std::uint32_t>(bytes, 8);
  header.body_crc = load_at<std::uint32_t>(bytes, 12);
  header.sequence = load_at<std::uint64_t>(bytes, 16);
  if (!is_known(header.type))
    return Error(ErrorCode::kProtocol,
                 "Unknown frame type " + std::to_string(static_cast<unsigned>(header.type)));
  if (header.body_bytes > max_body_bytes(header.type))
    return Error(ErrorCode::kProtocol, "Frame " + std::string(to_string(header.type)) + " announces " +
                                           std::to_string(header.body_bytes) + " bytes, but at most " +
                                           std::to_string(max_body_bytes(header.type)) + " are allowed");
  return header;
}

Result<void> check_body(const FrameHeader& header, std::span<const std::byte> body) {
  if (body.size() != header.body_bytes)
    return Error(ErrorCode::kProtocol, "A frame body has " + std::to_string(body.size()) +
                                           " bytes, but its header states " +
                                           std::to_string(header.body_bytes));
  if (crc32(body) != header.body_crc)
    return Error(ErrorCode::kProtocol,
                 "Frame " + std::string(to_string(header.type)) + " damaged: wrong CRC");
  return ok();
}

Result<std::vector<std::byte>> make_frame(FrameType type, std::uint64_t sequence,
                                          std::span<const std::byte> body) {
  if (!is_known(type) || body.size() > max_body_bytes(type))
    return Error(ErrorCode::kRefused, "Message " + std::string(to_string(type)) + " of " +
                                          std::to_string(body.size()) + " bytes is too long for a frame");
  std::vector<std::byte> out;
  out.reserve(kFrameHeaderBytes + body.size());
  store(out, kFrameMagic);
  store(out, kFrameVersion);
  store(out, static_cast<std::uint16_t>(type));
  store(out, static_cast<std::uint32_t>(body.size()));
  store(out, crc32(body));
  store(out, sequence);
  out.insert(out.end(), body.begin(), body.end());
  return out;
}

void InputArchive::read(void* out, std::size_t bytes) {
  if (bytes > left())
    throw DecodeError(ErrorCode::kProtocol,
                      std::to_string(bytes) + " bytes wanted, " + std::to_string(left()) + " left");
  if (bytes != 0) std::memcpy(out, bytes_.data() + position_, bytes);
  position_ += bytes;
}

std::size_t InputArchive::read_count() {
  std::uint64_t count = 0;
  read(&count, sizeof count);
  if (count > left())
    throw DecodeError(ErrorCode::kProtocol, "a count of " + std::to_string(count) + " elements with " +
                                                std::to_string(left()) + " bytes left");
  return static_cast<std::size_t>(count);
}

InputArchive::Envelope InputArchive::open_envelope(std::uint8_t known_version) {
  if (++depth_ > kDeepestNesting) throw DecodeError(ErrorCode::kProtocol, "structs are nested too deeply");
  std::uint8_t version = 0;
  std::uint8_t compat = 0;
  std::uint32_t size = 0;
  read(&version, 1);
  read(&compat, 1);
  read(&size, sizeof size);
  if (version == 0 || compat == 0 || compat > version)
    throw DecodeError(ErrorCode::kProtocol, "a struct has invalid versions");
  if (compat > known_version)
    throw DecodeError(ErrorCode::kNotSupported, "a struct has version " + std::to_string(version) +
                                                    ", but this build uses " + std::to_string(known_version));
  if (size > left()) throw DecodeError(ErrorCode::kProtocol, "a struct is longer than its message");
  const Envelope envelope{bytes_, position_ + size, version > known_version, older_};
  bytes_ = bytes_.first(position_ + size);
  older_ = version < known_version;
  return envelope;
}

void InputArchive::close_envelope(const Envelope& envelope) {
  if (position_ != envelope.end && !envelope.newer)
    throw DecodeError(ErrorCode::kProtocol,
                      std::to_string(envelope.end - position_) + " bytes are left over in a struct");
  position_ = envelope.end;
  bytes_ = envelope.outer;
  older_ = envelope.outer_older;
  --depth_;
}

void OutputArchive::write(const void* data, std::size_t bytes) {
  const auto* p = static_cast<const std::byte*>(data);
  bytes_.insert(bytes_.end(), p, p + bytes);
}

}  // namespace ckpt::wire
