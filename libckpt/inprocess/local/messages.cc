// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/local/messages.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "libckpt/include/ckpt/ckpt.h"

namespace ckpt::local {
namespace {

// The head of every batch. It precedes the batch's records.
struct BatchHead {
  std::uint32_t count = 0;
  std::uint32_t reserved = 0;
  std::uint64_t sequence = 0;
};

template <class T>
concept Batch = requires(const T& body) {
  body.records.size();
};

// A batch that belongs to a migration. The migration's number follows the batch's head.
template <class T>
concept MigrationBatch = Batch<T> && requires(const T& body) {
  body.migration;
};

template <class T>
using RecordOf = typename decltype(T::records)::value_type;

Error refuse(MessageType type, std::string_view cause) {
  return Error(ErrorCode::kProtocol,
               "Local message " + std::string(to_string(type)) + " is not valid: " + std::string(cause));
}

template <std::size_t kBytes>
bool is_clean(const FixedText<kBytes>& text) {
  for (char c : text.bytes) {
    if (c == '\0') return true;
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  return false;  // the text is not terminated
}

template <std::size_t kBytes>
bool is_clean_name(const FixedText<kBytes>& text) {
  return is_clean(text) && text.bytes[0] != '\0';
}

bool is_flag(std::uint32_t value) {
  return value <= 1;
}

const char* problem(const RegionRecord& region) {
  if (region.id == kNoRegion || region.generation == 0) return "a region has no id or no generation";
  if (region.bytes == 0 || region.bytes >> 48 != 0) return "a region's size";
  return nullptr;
}

const char* problem(const TensorRecord& tensor) {
  if (!is_clean_name(tensor.name)) return "a tensor's name";
  if (tensor.bytes == 0 || tensor.bytes >> 48 != 0 || tensor.offset >> 48 != 0)
    return "a tensor's size or offset is out of range";
  if (tensor.region == kNoRegion && tensor.offset != 0) return "a tensor has an offset, but no region";
  if (tensor.kind < CKPT_PARAMETER || tensor.kind > CKPT_SCRATCH) return "a tensor's kind";
  if (tensor.dims > kMaxDims || tensor.reserved != 0) return "a tensor's dimensions";
  const std::uint64_t element = dtype_bytes(tensor.dtype);
  if (element == 0) return "a tensor's dtype";
  for (std::size_t i = tensor.dims; i < kMaxDims; ++i) {
    if (tensor.shape[i] != 0) return "a tensor's shape has values beyond its number of dimensions";
  }
  std::uint64_t bytes = 0;
  if (!shape_bytes(tensor.dtype, std::span(tensor.shape).first(tensor.dims), bytes) ||
      bytes != tensor.bytes) {
    return "a tensor's shape and size do not match";
  }
  return nullptr;
}

const char* problem(const StateSummary& summary) {
  if (!is_flag(summary.ready) || !is_flag(summary.movable)) return "a flag";
  return is_clean(summary.reason) ? nullptr : "the reason's text has invalid characters";
}

const char* problem(const RegionKey& region) {
  return region.id == kNoRegion || region.generation == 0 ? "a region has no id or no generation" : nullptr;
}

const char* problem(const Hello& body) {
  if (body.pid == 0) return "no pid";
  if (!body.mode.is_known()) return "the mode";
  return is_flag(body.restored) ? nullptr : "a flag";
}

const char* problem(const Welcome& body) {
  if (body.role != Role::kFresh && body.role != Role::kStandby) return "the role";
  if (body.rank_count == 0 || body.rank_count > kMaxRanks) return "the number of ranks is out of range";
  if (!is_flag(body.counts_barriers) || body.reserved != 0) return "a flag";
  return is_clean(body.job) ? nullptr : "the job's id has invalid characters";
}

const char* problem(const Status& body) {
  if (body.role != Role::kFresh && body.role != Role::kStandby) return "the role";
  if (body.phase > Phase::kDumped) return "the phase";
  if (!body.mode.is_known()) return "the mode";
  if (body.memory > MemoryState::kMapping) return "the memory's state is unknown";
  if (!is_flag(body.ended_by_keeper) || !is_flag(body.stopped) || !is_flag(body.exporting)) return "a flag";
  if (body.deadline_ns < 0 || body.barrier_entry_ns < 0 || body.quiesced_ns < 0 || body.resumed_ns < 0)
    return "a time";
  return is_clean(body.job) ? nullptr : "the job's id has invalid characters";
}

const char* problem(const Failed& body) {
  if (body.code == 0 || body.code > static_cast<std::uint32_t>(ErrorCode::kInternal))
    return "the error code is unknown";
  return is_clean(body.text) ? nullptr : "the text";
}

const char* problem(const Paused& body) {
  if (body.barrier_entry_ns < 0 || body.quiesced_ns < body.barrier_entry_ns) return "the times";
  return body.host_state_bytes > kMaxHostStateBytes ? "the host state's size is out of range" : nullptr;
}

const char* problem(const Resume& body) {
  if (body.deadline_ns < 0) return "the deadline";
  if (!is_flag(body.into_gate) || body.reserved != 0) return "a flag";
  return body.host_state_bytes > kMaxHostStateBytes ? "the host state's size is out of range" : nullptr;
}

const char* problem(const Running& body) {
  if (body.resumed_ns < 0 || !is_flag(body.was_paused) || body.reserved != 0) return "a field";
  return nullptr;
}

const char* problem(const GroupRecord& group) {
  if (!is_clean_name(group.name)) return "a group's name";
  return group.bytes > kTicketBytes || group.reserved != 0 ? "a group's ticket" : nullptr;
}
const char* problem(const AskGroups& body) {
  return body.epoch == 0 ? "no epoch" : nullptr;
}
const char* problem(const GroupsEnd& body) {
  return is_flag(body.knows_gang) && body.reserved == 0 ? nullptr : "a flag";
}

const char* problem(const StopAt& body) {
  return body.attempt == 0 ? "no attempt" : nullptr;
}

const char* problem(const TensorDropped& body) {
  return is_clean_name(body.name) ? nullptr : "the name";
}
const char* problem(const SetDeadline& body) {
  return body.deadline_ns < 0 ? "the deadline" : nullptr;
}
const char* problem(const Reattach& body) {
  return body.restore_thread != 0 && body.hold_ms == 0 ? "a hold has no time limit" : nullptr;
}
const char* problem(const DescribeEnd& body) {
  return problem(body.summary);
}
const char* problem(const ExportEnd& body) {
  return problem(body.summary);
}
const char* problem(const RankExited& body) {
  return is_flag(body.ended_by_keeper) ? nullptr : "a flag";
}
const char* problem(const RegionFreed& body) {
  return body.id == kNoRegion ? "no region" : nullptr;
}
const char* problem(const RegionFreedAck& body) {
  return body.id == kNoRegion ? "no region" : nullptr;
}

const char* problem(const Released& body) {
  return body.at_ns < 0 ? "the time" : nullptr;
}
const char* problem(const Mapped& body) {
  return body.at_ns < 0 ? "the time" : nullptr;
}
const char* problem(const Map& body) {
  if (body.set > MemorySet::kArrived) return "the set";
  if (body.gpu_count > kMaxGpus) return "the number of GPUs is out of range";
  if (body.set != MemorySet::kArrived && body.migration != 0)
    return "a migration is given without its memory set";
  return nullptr;
}

const char* problem(const Release& body) {
  return is_flag(body.discard) && body.reserved == 0 ? nullptr : "a field";
}
const char* problem(const Fetch& body) {
  if (body.set != MemorySet::kExported && body.set != MemorySet::kArrived) return "the set";
  if (body.set != MemorySet::kArrived && body.migration != 0)
    return "a migration is given without its memory set";
  return body.reserved == 0 ? nullptr : "a field";
}

template <class T>
const char* problem(const T&) {
  return nullptr;  // every value of this field is valid
}

bool descriptors_fit(const Body& body, std::size_t descriptors) {
  return std::visit(
      [descriptors]<class T>(const T& value) {
        if constexpr (std::is_same_v<T, ExportBatch> || std::is_same_v<T, Deposit> ||
                      std::is_same_v<T, MapBatch> || std::is_same_v<T, Made> || std::is_same_v<T, Held> ||
                      std::is_same_v<T, Replace>) {
          return descriptors == value.records.size();
        }
        if constexpr (std::is_same_v<T, Welcome>) return descriptors == 1 + value.counts_barriers;
        if constexpr (std::is_same_v<T, Paused> || std::is_same_v<T, Resume>) {
          return descriptors == (value.host_state_bytes != 0 ? 1u : 0u);
        }
        return descriptors == 0;
      },
      body);
}

template <Batch T>
Result<Body> parse_batch(std::span<const std::byte> bytes) {
  using Record = RecordOf<T>;
  BatchHead head;
  if (bytes.size() < sizeof head) return refuse(T::kType, "it is too short");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.count == 0 || head.count > kMaxRecords || head.reserved != 0) return refuse(T::kType, "the count");
  constexpr std::size_t kStart = sizeof head + (MigrationBatch<T> ? sizeof(std::uint64_t) : 0);
  if (bytes.size() != kStart + head.count * sizeof(Record)) return refuse(T::kType, "its length");
  T body;
  if constexpr (MigrationBatch<T>) {
    std::memcpy(&body.migration, bytes.data() + sizeof head, sizeof body.migration);
  }
  if constexpr (requires { body.sequence; }) {
    body.sequence = head.sequence;
  } else if (head.sequence != 0) {
    return refuse(T::kType, "the sequence");
  }
  body.records.resize(head.count);
  std::memcpy(static_cast<void*>(body.records.data()), bytes.data() + kStart, head.count * sizeof(Record));
  for (const Record& record : body.records) {
    if (const char* cause = problem(record)) return refuse(T::kType, cause);
  }
  return Body(std::move(body));
}

template <class T>
Result<Body> parse_body(std::span<const std::byte> bytes) {
  if constexpr (Batch<T>) {
    return parse_batch<T>(bytes);
  } else if constexpr (std::is_empty_v<T>) {
    if (!bytes.empty()) return refuse(T::kType, "its length");
    return Body(T{});
  } else {
    // The body has no padding: every byte on the socket belongs to a field, and none is a leftover of this
    // process's memory.
    static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>);
    if (bytes.size() != sizeof(T)) return refuse(T::kType, "its length");
    T body;
    std::memcpy(static_cast<void*>(&body), bytes.data(), sizeof body);
    if (const char* cause = problem(body)) return refuse(T::kType, cause);
    return Body(std::move(body));
  }
}

template <std::size_t... kIndex>
Result<Body> parse_any(MessageType type, std::span<const std::byte> bytes, std::index_sequence<kIndex...>) {
  Result<Body> parsed = refuse(type, "the type is not known");
  const auto attempt = [&]<class T>(std::type_identity<T>) {
    if (T::kType != type) return false;
    parsed = parse_body<T>(bytes);
    return true;
  };
  (void)(attempt(std::type_identity<std::variant_alternative_t<kIndex, Body>>{}) || ...);
  return parsed;
}

void append(std::vector<std::byte>& out, const void* data, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  out.insert(out.end(), first, first + bytes);
}

template <class T>
void append_body(std::vector<std::byte>& out, const T& body) {
  if constexpr (Batch<T>) {
    BatchHead head{.count = static_cast<std::uint32_t>(body.records.size())};
    if constexpr (requires { body.sequence; }) head.sequence = body.sequence;
    append(out, &head, sizeof head);
    if constexpr (MigrationBatch<T>) append(out, &body.migration, sizeof body.migration);
    append(out, body.records.data(), body.records.size() * sizeof(RecordOf<T>));
  } else if constexpr (!std::is_empty_v<T>) {
    append(out, &body, sizeof body);
  }
}

}  // namespace

std::uint64_t dtype_bytes(std::uint32_t dtype) noexcept {
  switch (dtype) {
    case CKPT_U8:
    case CKPT_I8:
    case CKPT_F8E4M3:
    case CKPT_F8E5M2:
    case CKPT_BOOL:
      return 1;
    case CKPT_U16:
    case CKPT_I16:
    case CKPT_F16:
    case CKPT_BF16:
      return 2;
    case CKPT_U32:
    case CKPT_I32:
    case CKPT_F32:
      return 4;
    case CKPT_U64:
    case CKPT_I64:
    case CKPT_F64:
      return 8;
    default:
      return 0;
  }
}

bool shape_bytes(std::uint32_t dtype, std::span<const std::uint64_t> shape, std::uint64_t& bytes) noexcept {
  bytes = dtype_bytes(dtype);
  for (std::uint64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return false;
  }
  return bytes != 0;
}

std::string_view to_string(MessageType type) noexcept {
  switch (type) {
#define CKPT_MESSAGE_TYPE(number, name) \
  case MessageType::k##name:            \
    return #name;
#include "libckpt/inprocess/local/message_types.def"
#undef CKPT_MESSAGE_TYPE
  }
  return "?";
}

std::string_view to_string(Phase phase) noexcept {
  switch (phase) {
    case Phase::kStarting:
      return "starting";
    case Phase::kConnected:
      return "connected";
    case Phase::kStandbyReady:
      return "standby-ready";
    case Phase::kResuming:
      return "resuming";
    case Phase::kRunning:
      return "running";
    case Phase::kPausing:
      return "pausing";
    case Phase::kPaused:
      return "paused";
    case Phase::kLeaving:
      return "leaving";
    case Phase::kExited:
      return "exited";
    case Phase::kDumped:
      return "dumped";
  }
  return "?";
}

std::string_view to_string(MemoryState state) noexcept {
  switch (state) {
    case MemoryState::kMapped:
      return "mapped";
    case MemoryState::kReleasing:
      return "releasing";
    case MemoryState::kReleased:
      return "released";
    case MemoryState::kMapping:
      return "mapping";
  }
  return "?";
}

std::uint64_t region_digest(std::uint64_t id, std::uint64_t generation) noexcept {
  std::uint64_t value = id * 0x9e3779b97f4a7c15ull + generation;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

Error to_error(const Failed& failed) {
  return Error(static_cast<ErrorCode>(failed.code), failed.text.str());
}

Failed to_failed(MessageType refused, const Error& error) {
  Failed failed;
  failed.refused_type = static_cast<std::uint32_t>(refused);
  failed.code = static_cast<std::uint32_t>(error.code());
  std::string text = error.to_string();
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  failed.text.assign(text);
  return failed;
}

MessageType type_of(const Body& body) noexcept {
  return std::visit([]<class T>(const T&) { return T::kType; }, body);
}

Result<std::vector<std::byte>> encode(const Message& message) {
  std::vector<std::byte> out;
  out.reserve(1024);
  MessageHeader header{.type = type_of(message.body), .rank = message.rank, .request = message.request};
  append(out, &header, sizeof header);
  const bool fits = std::visit(
      [&out]<class T>(const T& body) {
        if constexpr (Batch<T>) {
          if (body.records.empty() || body.records.size() > kMaxRecords) return false;
        }
        append_body(out, body);
        return true;
      },
      message.body);
  if (!fits) {
    return Error(ErrorCode::kInvalidArgument,
                 "A batch of the local protocol has 1 to " + std::to_string(kMaxRecords) + " records");
  }
  header.bytes = static_cast<std::uint32_t>(out.size() - sizeof header);
  std::memcpy(out.data(), &header, sizeof header);
  return out;
}

Result<Message> parse(std::span<const std::byte> bytes, std::size_t descriptors) {
  MessageHeader header;
  if (bytes.size() < sizeof header || bytes.size() > kMaxMessageBytes) {
    return Error(ErrorCode::kProtocol,
                 "A local message of " + std::to_string(bytes.size()) + " bytes is not valid");
  }
  std::memcpy(static_cast<void*>(&header), bytes.data(), sizeof header);
  if (header.magic != kMagic)
    return Error(ErrorCode::kProtocol, "This is not a message of the local protocol (wrong magic number)");
  if (header.version != kProtocolVersion) {
    return Error(ErrorCode::kProtocol, "The peer uses version " + std::to_string(header.version) +
                                           " of the local protocol, but this program uses version " +
                                           std::to_string(kProtocolVersion) +
                                           ": install the same release for both");
  }
  if (header.rank >= kMaxRanks) return refuse(header.type, "the rank");
  if (header.bytes != bytes.size() - sizeof header) return refuse(header.type, "its length");
  CKPT_TRY(body, parse_any(header.type, bytes.subspan(sizeof header),
                           std::make_index_sequence<std::variant_size_v<Body>>{}));
  if (!descriptors_fit(body, descriptors)) {
    return refuse(header.type, "it came with " + std::to_string(descriptors) + " descriptors");
  }
  return Message{header.rank, header.request, std::move(body)};
}

}  // namespace ckpt::local
