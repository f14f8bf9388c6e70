// SPDX-License-Identifier: Apache-2.0
// Frames and bodies of the control connections (TCP and Unix sockets between coordinator, agents and movers).
//
// A frame is a fixed 24-byte little-endian header and a body:
//   magic u32 | version u16 | type u16 | length u32 | crc32 of the body u32 | sequence u64
// Header and length are checked before a byte of the body is read. A body's CRC is checked before the body is
// decoded.
//
// A body is cereal portable binary (little-endian, first byte 1) of one *enveloped* struct:
//   struct M {
//     static constexpr std::uint8_t kVersion = 1, kCompat = 1;
//     ...
//     template <class A> decltype(auto) fields(A& a) { return a(x, y); }
//   };
// `fields` must list every member; otherwise the code does not compile. A struct that also has documents with
// field names has the list of libckpt/record instead. A struct whose members need more than a list has
// `kOwnForm = true`. Each enveloped struct, nested ones too, is written as {version u8, compat u8, size u32,
// fields}. A reader refuses a struct whose compat is above its own kVersion. It skips fields that a newer
// version appended. Fields that an older version lacks keep their defaults. Any other remaining bytes are
// refused. Fields: integers, bool (0 or 1), double, std::string, std::vector, std::optional, enums, enveloped
// structs. An enum on the wire needs `constexpr bool is_known(E)` in its namespace; 0 and unknown values are
// refused. Every count is compared with the remaining bytes before a container grows, so that a peer's number
// cannot cause a large allocation.
//
// Threads: all functions are pure. Errors: kProtocol (drop the connection), kNotSupported (an unsupported
// version).
#pragma once

#include <array>
#include <cereal/cereal.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/record/fields.h"
#include "libckpt/record/names.h"

namespace ckpt {

// libckpt/base does not know the wire format. Argument-dependent lookup requires this function in the
// namespace of ErrorCode.
[[nodiscard]] constexpr bool is_known(ErrorCode code) {
  return code >= ErrorCode::kInvalidArgument && code <= ErrorCode::kInternal;
}

}  // namespace ckpt

namespace ckpt::wire {

inline constexpr std::uint32_t kFrameMagic = 0x4d47'5047;  // the magic of a frame: the bytes "GPGM"
inline constexpr std::uint16_t kFrameVersion = 1;
inline constexpr std::size_t kFrameHeaderBytes = 24;
// The maximum size of a frame of any type.
inline constexpr std::size_t kMaxFrameBytes = std::size_t{16} << 20;

enum class FrameType : std::uint16_t {
  kInvalid = 0,
#define CKPT_FRAME_TYPE(number, name, limit) name = number,
#include "libckpt/protocol/wire/frame_types.def"
#undef CKPT_FRAME_TYPE
};
[[nodiscard]] std::string_view to_string(FrameType type) noexcept;
[[nodiscard]] bool is_known(FrameType type) noexcept;
// Returns the maximum body size of a frame of this type.
[[nodiscard]] std::size_t max_body_bytes(FrameType type) noexcept;

struct FrameHeader {
  FrameType type = FrameType::kInvalid;
  std::uint32_t body_bytes = 0;
  std::uint32_t body_crc = 0;
  std::uint64_t sequence = 0;
};

// Parses exactly kFrameHeaderBytes bytes. Checks magic, version, a known type, and a length within the type's
// limit.
Result<FrameHeader> parse_header(std::span<const std::byte> bytes);
// Checks that the body matches the header: same length, same CRC.
Result<void> check_body(const FrameHeader& header, std::span<const std::byte> body);
// Returns header and body as they are sent to the socket. Returns kRefused if the body is over the type's
// limit.
Result<std::vector<std::byte>> make_frame(FrameType type, std::uint64_t sequence,
                                          std::span<const std::byte> body);

[[nodiscard]] std::uint32_t crc32(std::span<const std::byte> bytes) noexcept;

template <class T>
concept Enveloped = std::is_class_v<T> && requires {
  { T::kVersion } -> std::convertible_to<std::uint8_t>;
  { T::kCompat } -> std::convertible_to<std::uint8_t>;
};
template <class T>
concept WireEnum = std::is_enum_v<T>;
template <class T>
concept WireNumber = (std::is_integral_v<T> && !std::is_same_v<T, bool>) || std::is_same_v<T, double>;

// An exception that is thrown only inside a decode and caught by decode().
struct DecodeError : cereal::Exception {
  DecodeError(ErrorCode error_code, const std::string& what) : cereal::Exception(what), code(error_code) {}
  ErrorCode code;
};

// An archive that reads from a span and never beyond its end.
class InputArchive : public cereal::InputArchive<InputArchive, cereal::AllowEmptyClassElision> {
 public:
  explicit InputArchive(std::span<const std::byte> bytes)
      : cereal::InputArchive<InputArchive, cereal::AllowEmptyClassElision>(this), bytes_(bytes) {}

  [[nodiscard]] std::size_t left() const noexcept { return bytes_.size() - position_; }
  void read(void* out, std::size_t bytes);
  // Reads a container's element count. Every element occupies at least one byte, so a count above the number
  // of remaining bytes is refused.
  std::size_t read_count();
  // Returns whether the struct is of an older version and ends here. This field and the later fields then
  // keep their defaults.
  [[nodiscard]] bool ended_early() const noexcept { return older_ && left() == 0; }

  template <class Fields>
  void enter(std::uint8_t known_version, Fields&& fields) {
    const Envelope envelope = open_envelope(known_version);
    fields();
    close_envelope(envelope);
  }
  // Calls `parts`, which together read one field. An older struct does not end inside this field.
  template <class Parts>
  void whole(Parts&& parts) {
    const bool older = std::exchange(older_, false);
    parts();
    older_ = older;
  }

 private:
  struct Envelope {
    std::span<const std::byte> outer;
    std::size_t end;
    bool newer;
    bool outer_older;
  };
  Envelope open_envelope(std::uint8_t known_version);
  void close_envelope(const Envelope& envelope);

  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
  unsigned depth_ = 0;
  bool older_ = false;  // whether the struct being read was written by an older version
};

class OutputArchive : public cereal::OutputArchive<OutputArchive, cereal::AllowEmptyClassElision> {
 public:
  OutputArchive() : cereal::OutputArchive<OutputArchive, cereal::AllowEmptyClassElision>(this) {}

  void write(const void* data, std::size_t bytes);
  [[nodiscard]] std::vector<std::byte> take() && { return std::move(bytes_); }

  template <class Fields>
  void enter(std::uint8_t version, std::uint8_t compat, Fields&& fields) {
    write(&version, 1);
    write(&compat, 1);
    const std::size_t at = bytes_.size();
    const std::uint32_t hole = 0;
    write(&hole, sizeof hole);
    fields();
    const auto size = static_cast<std::uint32_t>(bytes_.size() - at - sizeof hole);
    std::memcpy(bytes_.data() + at, &size, sizeof size);
  }

 private:
  std::vector<std::byte> bytes_;
};

template <WireNumber T>
void CEREAL_LOAD_FUNCTION_NAME(InputArchive& archive, T& value) {
  if (archive.ended_early()) return;
  archive.read(&value, sizeof value);
}
template <WireNumber T>
void CEREAL_SAVE_FUNCTION_NAME(OutputArchive& archive, const T& value) {
  archive.write(&value, sizeof value);
}

template <class T>
requires std::same_as<T, bool>
void CEREAL_LOAD_FUNCTION_NAME(InputArchive& archive, T& value) {
  if (archive.ended_early()) return;
  std::uint8_t byte = 0;
  archive.read(&byte, 1);
  if (byte > 1) throw DecodeError(ErrorCode::kProtocol, "a bool is neither 0 nor 1");
  value = byte == 1;
}
template <class T>
requires std::same_as<T, bool>
void CEREAL_SAVE_FUNCTION_NAME(OutputArchive& archive, const T& value) {
  const std::uint8_t byte = value ? 1 : 0;
  archive.write(&byte, 1);
}

template <WireEnum T>
void CEREAL_LOAD_FUNCTION_NAME(InputArchive& archive, T& value) {
  if (archive.ended_early()) {
    // An enum without a valid default has existed since the first version, so it cannot be missing.
    if (!is_known(value)) throw DecodeError(ErrorCode::kProtocol, "an enum is missing");
    return;
  }
  std::underlying_type_t<T> number{};
  archive.read(&number, sizeof number);
  if (number == 0 || !is_known(static_cast<T>(number)))
    throw DecodeError(ErrorCode::kProtocol, "unknown enum value " + std::to_string(+number));
  value = static_cast<T>(number);
}
template <WireEnum T>
void CEREAL_SAVE_FUNCTION_NAME(OutputArchive& archive, const T& value) {
  archive.write(&value, sizeof value);
}

template <class C, class Tr, class Al>
void CEREAL_LOAD_FUNCTION_NAME(InputArchive& archive, std::basic_string<C, Tr, Al>& value) {
  static_assert(sizeof(C) == 1);
  if (archive.ended_early()) return;
  const std::size_t count = archive.read_count();
  value.resize(count);
  archive.read(value.data(), count);
}
template <class C, class Tr, class Al>
void CEREAL_SAVE_FUNCTION_NAME(OutputArchive& archive, const std::basic_string<C, Tr, Al>& value) {
  const std::uint64_t count = value.size();
  archive.write(&count, sizeof count);
  archive.write(value.data(), value.size());
}

template <class T, class Al>
void CEREAL_LOAD_FUNCTION_NAME(InputArchive& archive, std::vector<T, Al>& value) {
  if (archive.ended_early()) return;
  const std::size_t count = archive.read_count();
  value.clear();
  if constexpr (sizeof(T) == 1 &&
                (std::is_integral_v<T> || std::is_same_v<T, std::byte>)&&!std::is_same_v<T, bool>) {
    value.resize(count);
    archive.read(value.data(), count);
  } else {
    archive.whole([&] {
      for (std::size_t i = 0; i < count; ++i) archive(value.emplace_back());
    });
  }
}
template <class T, class Al>
void CEREAL_SAVE_FUNCTION_NAME(OutputArchive& archive, const std::vector<T, Al>& value) {
  const std::uint64_t count = value.size();
  archive.write(&count, sizeof count);
  if constexpr (sizeof(T) == 1 &&
                (std::is_integral_v<T> || std::is_same_v<T, std::byte>)&&!std::is_same_v<T, bool>) {
    archive.write(value.data(), value.size());
  } else {
    for (const T& element : value) archive(element);
  }
}

template <class T>
void CEREAL_LOAD_FUNCTION_NAME(InputArchive& archive, std::optional<T>& value) {
  if (archive.ended_early()) return;
  bool present = false;
  archive(present);
  value.reset();
  if (present) archive.whole([&] { archive(value.emplace()); });
}
template <class T>
void CEREAL_SAVE_FUNCTION_NAME(OutputArchive& archive, const std::optional<T>& value) {
  archive(value.has_value());
  if (value) archive(*value);
}

template <class T, std::size_t kCount>
void CEREAL_LOAD_FUNCTION_NAME(InputArchive& archive, std::array<T, kCount>& value) {
  for (T& element : value) archive(element);
}
template <class T, std::size_t kCount>
void CEREAL_SAVE_FUNCTION_NAME(OutputArchive& archive, const std::array<T, kCount>& value) {
  for (const T& element : value) archive(element);
}

// A counter of the members that `fields` lists, by their types. No function is called at run time.
struct FieldCounter {
  template <class... F>
  std::integral_constant<std::size_t, sizeof...(F)> operator()(F&...) const;
};

template <class T>
concept HasOwnForm = requires {
  requires T::kOwnForm;
};

template <class T, class A>
void apply_fields(T& value, A& archive) {
  if constexpr (record::Described<T>) {
    record::with_members(value, archive);
  } else {
    if constexpr (!HasOwnForm<T> && !std::is_empty_v<T>) {
      using Listed = decltype(value.fields(std::declval<FieldCounter&>()));
      record::check_member_count<T, std::remove_cvref_t<Listed>::value>();
    }
    value.fields(archive);
  }
}

template <Enveloped T>
void CEREAL_LOAD_FUNCTION_NAME(InputArchive& archive, T& value) {
  if (archive.ended_early()) return;
  archive.enter(T::kVersion, [&] { apply_fields(value, archive); });
}
template <Enveloped T>
void CEREAL_SAVE_FUNCTION_NAME(OutputArchive& archive, const T& value) {
  // `fields` is one function for both directions. The output archive only reads from it.
  archive.enter(T::kVersion, T::kCompat, [&] { apply_fields(const_cast<T&>(value), archive); });
}

}  // namespace ckpt::wire

// cereal has its own rule for enums, which checks nothing. This rule replaces it for the two archives.
namespace cereal {
template <class E>
requires std::is_enum_v<E>
struct specialize<ckpt::wire::InputArchive, E, specialization::non_member_load_save> : std::true_type {
};
template <class E>
requires std::is_enum_v<E>
struct specialize<ckpt::wire::OutputArchive, E, specialization::non_member_load_save> : std::true_type {
};
}  // namespace cereal

namespace ckpt::wire {

template <Enveloped M>
[[nodiscard]] std::vector<std::byte> encode(const M& message) {
  OutputArchive archive;
  const std::uint8_t little_endian = 1;
  archive.write(&little_endian, 1);
  archive(message);
  return std::move(archive).take();
}

template <Enveloped M>
Result<M> decode(std::span<const std::byte> bytes) {
  try {
    InputArchive archive(bytes);
    std::uint8_t little_endian = 0;
    archive.read(&little_endian, 1);
    if (little_endian != 1)
      return Error(ErrorCode::kProtocol, "The message is not little-endian portable binary");
    M message;
    archive(message);
    if (archive.left() != 0)
      return Error(ErrorCode::kProtocol,
                   std::to_string(archive.left()) + " bytes are left over after a message");
    return message;
  } catch (const DecodeError& e) {
    return Error(e.code, std::string("Malformed message: ") + e.what());
  } catch (const std::exception& e) {
    return Error(ErrorCode::kProtocol, std::string("Malformed message: ") + e.what());
  }
}

}  // namespace ckpt::wire

CEREAL_REGISTER_ARCHIVE(ckpt::wire::InputArchive)
CEREAL_REGISTER_ARCHIVE(ckpt::wire::OutputArchive)
CEREAL_SETUP_ARCHIVE_TRAITS(ckpt::wire::InputArchive, ckpt::wire::OutputArchive)
