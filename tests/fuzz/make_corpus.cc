// SPDX-License-Identifier: Apache-2.0
// Writes the first inputs of the fuzz targets' corpora, made from real encodings: fuzz_make_corpus DIRECTORY. tools/fuzz --merge
// adds what the fuzzers find beyond them.
#include <elf.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <vector>

#include "agent/context_helper/messages.h"
#include "agent/health/health_record.h"
#include "agent/health_helper/messages.h"
#include "agent/host_process/file_list.h"
#include "agent/job_record.h"
#include "libckpt/codec/blocks.h"
#include "libckpt/codec/coder.h"
#include "libckpt/engine/lane_messages.h"
#include "libckpt/image/manifest.h"
#include "libckpt/image/peer/file_messages.h"
#include "libckpt/image/plan.h"
#include "libckpt/image/stored_job.h"
#include "libckpt/include/ckpt/ckpt.h"
#include "libckpt/local/messages.h"
#include "libckpt/migration/records.h"
#include "libckpt/transport/ucx_windows.h"
#include "libckpt/wire/mover_messages.h"
#include "tests/fuzz/control_frame_list.h"

namespace ckpt::fuzz {
namespace {

using Bytes = std::vector<std::byte>;

std::string bytes_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
template <class T>
std::string raw(const T& value) {
  return bytes_text(std::as_bytes(std::span(&value, 1)));
}

class Corpus {
 public:
  explicit Corpus(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void add(const std::string& target, const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(folder_ / target);
    std::ofstream(folder_ / target / name, std::ios::binary) << bytes;
  }
  void add_numbered(const std::string& target, const std::string& bytes) {
    add(target, "seed" + std::to_string(++next_[target]), bytes);
  }

 private:
  std::filesystem::path folder_;
  std::map<std::string, unsigned> next_;
};

// An archive that puts something into every field.
class Filler {
 public:
  template <class... T>
  void operator()(T&... values) {
    (fill(values), ...);
  }

 private:
  template <class T>
  void fill(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = true;
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(1);
    } else if constexpr (std::is_same_v<T, std::byte>) {
      value = std::byte{7};
    } else if constexpr (std::is_arithmetic_v<T>) {
      value = static_cast<T>(++next_);
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = "text";
    } else if constexpr (requires { value.emplace_back(); }) {
      value.resize(2);
      for (auto& element : value) fill(element);
    } else if constexpr (requires { value.emplace(); }) {
      fill(value.emplace());
    } else {
      value.fields(*this);
    }
  }
  unsigned next_ = 0;
};

template <class M>
M filled() {
  M message;
  Filler filler;
  message.fields(filler);
  return message;
}

wire::MigrationPlan migration_plan() {
  auto plan = filled<wire::MigrationPlan>();
  plan.fingerprint_key.assign(wire::kFingerprintKeyBytes, std::byte{1});
  plan.session_token.assign(wire::kSessionTokenBytes, std::byte{2});
  return plan;
}

std::vector<wire::SwitchMessage> switch_messages() {
  using namespace wire;
  const Reason reason(ErrorCode::kTimedOut, "late");
  const auto c = Party::kCoordinator;
  const auto s = Party::kSource;
  const auto t = Party::kTarget;
  const std::vector<RankPlace> ranks{RankPlace(0, "a", "0", "b", "1")};
  return {{1, 2, 3, c, s, Prepare(ranks, encode(migration_plan()))},
          {1, 2, 3, s, c, Prepared(Bytes(5))},
          {1, 2, 3, t, c, Refused(reason)},
          {1, 2, 3, c, t, Start(Bytes(5))},
          {1, 2, 3, s, c, Precopied{}},
          {1, 2, 3, c, s, Granted(4)},
          {1, 2, 3, s, c, Failed(reason)},
          {1, 2, 3, t, c, Verified{}},
          {1, 2, 3, c, t, Commit(4)},
          {1, 2, 3, t, c, LeaseRequest(4, 123)},
          {1, 2, 3, c, t, Lease(4, 123, 10'000)},
          {1, 2, 3, t, s, Committed(4)},
          {1, 2, 3, t, s, Runs(4)},
          {1, 2, 3, s, t, Released{}},
          {1, 2, 3, t, s, Relinquished(reason)},
          {1, 2, 3, c, t, AbortRequest(reason)},
          {1, 2, 3, c, t, Aborted(reason)},
          {1, 2, 3, s, c, Resumed(3, true, true)},
          {1, 2, 3, c, s, Closed(Side::kTarget)},
          {1, 2, 3, s, t, Query(true)}};
}

void add_control_frames(Corpus& corpus) {
  std::uint16_t index = 0;
  for (const auto& message : switch_messages())
    corpus.add_numbered("control_frames", raw(index) + bytes_text(wire::encode_switch(message)));
  ControlMessages::for_each([&]<class M>() {
    corpus.add_numbered("control_frames", raw(++index) + bytes_text(wire::encode(filled<M>())));
  });
  const auto frame = wire::make_frame(wire::FrameType::kPing, 5, wire::encode(wire::Ping()));
  corpus.add_numbered("control_frames", bytes_text(frame.value()));
}

template <std::size_t... I>
void add_mover_packets(Corpus& corpus, std::index_sequence<I...>) {
  using wire::mover::Message;
  (corpus.add_numbered(
       "mover_packets",
       bytes_text(
           wire::mover::encode_message(Message(filled<std::variant_alternative_t<I, Message>>())).value())),
   ...);
}

std::vector<std::pair<std::uint8_t, local::Body>> job_messages() {
  using namespace local;
  TensorRecord tensor;
  tensor.name.assign("layer.0.weight");
  tensor.region = 3;
  tensor.offset = 4096;
  tensor.bytes = 6 * 4;
  tensor.dtype = CKPT_F32;
  tensor.kind = CKPT_PARAMETER;
  tensor.dims = 2;
  tensor.shape = {2, 3};
  const RegionRecord region{1, 6, 2 << 20, {1, 2, 3}};
  Welcome welcome;
  welcome.job.assign("j-1");
  Status status;
  status.phase = Phase::kPaused;
  local::Failed failed;
  failed.code = static_cast<std::uint32_t>(ErrorCode::kRefused);
  failed.text.assign("no");
  return {{0, local::Hello{7, 1, local::Way::kTransparent, 1}},
          {1, welcome},
          {0, Attach{}},
          {0, status},
          {0, Done{}},
          {0, failed},
          {0, Describe{}},
          {0, Tensors{{tensor}}},
          {0, Regions{{region}}},
          {0, DescribeEnd{}},
          {0, Export{}},
          {1, ExportBatch{9, {region}}},
          {0, ExportAck{9}},
          {0, ExportEnd{}},
          {0, RegionFreed{1, 2}},
          {0, RegionFreedAck{1, 2}},
          {0, TensorDropped{}},
          {0, StopExport{}},
          {0, Ready{}},
          {0, StandbyReady{}},
          {0, Pause{}},
          {1, Paused{10, 20, 64}},
          {1, Resume{2, 0, 64}},
          {0, Running{2, 30, 1, 0}},
          {0, Moved{}},
          {0, SetDeadline{5}},
          {0, Stop{100}},
          {0, Kill{}},
          {0, Shutdown{}},
          {0, RankStopped{1}},
          {0, RankContinued{2}},
          {0, RankExited{0, 1}},
          {0, Release{2, 77}},
          {0, Released{40}},
          {1, Deposit{3, 12, {region}}},
          {0, Withdraw{12}},
          {0, local::Map{.set = MemorySet::kArrived, .gpu_count = 1, .migration = 12}},
          {1, MapBatch{4, {region}}},
          {0, MapAck{4}},
          {0, Mapped{50}},
          {0, Make{5, {{1, 6}}}},
          {1, Made{5, {region}}},
          {0, PrepareDump{}},
          {0, DumpReady{}},
          {0, Reattach{}},
          {0, Fetch{MemorySet::kArrived, 0, 12, 3}},
          {1, Held{3, {region}}},
          {1, Replace{6, 12, {region}}},
          {0, WithdrawRegions{7, 12, {{1, 6}}}}};
}

void add_journals(Corpus& corpus) {
  using namespace migration;
  const SwitchInfo info(1, 2, 1, {RankPlace(0, "a", "0", "b", "1")}, wire::encode(migration_plan()));
  const std::pair<Party, RecordKind> kinds[] = {
      {Party::kCoordinator, RecordKind::kBegun},   {Party::kCoordinator, RecordKind::kGranted},
      {Party::kCoordinator, RecordKind::kAborted}, {Party::kCoordinator, RecordKind::kClosed},
      {Party::kSource, RecordKind::kBarrier},      {Party::kSource, RecordKind::kResumed},
      {Party::kSource, RecordKind::kReleased},     {Party::kTarget, RecordKind::kCommitted},
      {Party::kTarget, RecordKind::kRelinquished}};
  for (const auto& [party, kind] : kinds) {
    Record record(info, party, kind, 2);
    record.side = 1;
    corpus.add_numbered("journal_records", bytes_text(encode_record(record)));
  }
  // {cut u16, no magic u8, {order u8, choice u8, ...}...}: journal_files.cc
  corpus.add("journal_files", "empty", std::string(3, '\0'));
  corpus.add("journal_files", "intact", std::string(3, '\0') + std::string({0, 1, 0, 2, 0, 3}));
  corpus.add("journal_files", "compacted", std::string({0, 0, 7}) + std::string({0, 1, 0, 2, 0, 3}));
  corpus.add("journal_files", "torn", std::string({9, 0, 0}) + std::string({0, 1, 0, 2, 0, 3}));
  corpus.add("journal_files", "damaged_between",
             std::string(3, '\0') + std::string({0, 1, 5, 2, 20, 0, 0, 3}));
  corpus.add("journal_files", "forged", std::string(3, '\0') + std::string({0, 1, 1, 4, 'b', 'o', 'd', 'y'}));
  corpus.add("journal_files", "wrong_index", std::string(3, '\0') + std::string({0, 1, 2, 2, 7, 0, 0, 0}));
  corpus.add("journal_files", "old_record",
             std::string(3, '\0') + std::string({0, 1, 0, 2, 2, 2, 1, 0, 0, 0}));
  corpus.add("journal_files", "garbage", std::string({0, 0, 1}) + std::string({3, 8}) + "NOTAJRNL");
  corpus.add("journal_files", "zeroes", std::string(3, '\0') + std::string({0, 1, 4, 100, 3, 2, 'x', 'y'}));
}

wire::TensorInfo tensor(const std::string& name, std::uint64_t region, std::uint64_t offset,
                        std::uint64_t floats, std::uint32_t kind = CKPT_PARAMETER) {
  wire::TensorInfo t;
  t.name = name;
  t.region = region;
  t.offset = offset;
  t.bytes = floats * 4;
  t.dtype = CKPT_F32;
  t.kind = kind;
  t.shape = {floats};
  return t;
}

void add_images(Corpus& corpus) {
  const std::vector<std::vector<wire::TensorInfo>> choices{
      {tensor("a", 1, 0, 1000)},
      {tensor("a", 1, 0, 1000), tensor("tied", 1, 0, 1000), tensor("view", 1, 400, 100),
       tensor("b", 2, 64, 10)},
      {tensor("s", 1, 0, 1000, CKPT_SCRATCH), tensor("host", wire::kNoRegion, 0, 4)},
      {}};
  for (const auto& tensors : choices)
    corpus.add_numbered(
        "image_plans",
        std::string(1, '\0') + bytes_text(wire::encode(image::build_plan(tensors, 1 << 16, 1, 1).value())));
  image::Manifest manifest;
  corpus.add_numbered("image_plans", "\1" + bytes_text(wire::encode(manifest)));
  for (std::uint64_t id = 1; id < 4; ++id) {
    image::ManifestExtent& extent = manifest.extents.emplace_back();
    extent.id = id;
    extent.generation = 1;
    extent.bytes = 4096;
  }
  manifest.host_state_bytes = 100;
  corpus.add_numbered("image_plans", "\1" + bytes_text(wire::encode(manifest)));
  auto job = filled<image::StoredJob>();
  job.format = image::kStoredJobFormat;
  job.plan = image::build_plan(choices[1], 1 << 16, 1, 1).value();
  corpus.add_numbered("image_plans", "\2" + bytes_text(wire::encode(job)));
}

void add_lane_headers(Corpus& corpus) {
  using namespace engine;
  const SessionIdentity id{7, 2, 0};  // lane_headers.cc
  const auto add = [&](LaneMessage type, const auto& fill) {
    LaneBuffer message(type, id, 3);
    fill(message);
    corpus.add_numbered("lane_headers", bytes_text(message.bytes()));
  };
  const auto nothing = [](LaneBuffer&) {};
  for (const LaneMessage type :
       {LaneMessage::kCalibrate, LaneMessage::kCalibrateAck, LaneMessage::kFinal, LaneMessage::kVerify})
    add(type, nothing);
  for (const LaneMessage type : {LaneMessage::kPlan, LaneMessage::kHostState, LaneMessage::kManifest})
    add(type, [](LaneBuffer& m) { m.append(BlobRecord{4096, 0, {1, 2}}); });
  for (const LaneMessage type : {LaneMessage::kPing, LaneMessage::kPong, LaneMessage::kScanDone})
    add(type, [](LaneBuffer& m) { m.append(ClockRecord{123}); });
  add(LaneMessage::kHostRoom, [](LaneBuffer& m) { m.append(RoomRecord{4096, 1024}); });
  add(LaneMessage::kDrop, [](LaneBuffer& m) { m.append(DropRecord{1, 1}); });
  for (const std::size_t count : {std::size_t{1}, kMostChunks}) {
    add(LaneMessage::kChunks, [&](LaneBuffer& m) {
      for (std::size_t i = 0; i < count; ++i)
        m.append(ChunkRecord{
            1, 1, static_cast<std::uint32_t>(i), 65536, static_cast<std::uint8_t>(1 + i % 7), {}});
    });
    add(LaneMessage::kAck, [&](LaneBuffer& m) {
      for (std::size_t i = 0; i < count; ++i)
        m.append(AckRecord{1, 1, static_cast<std::uint32_t>(i), 0, {3, 4}});
    });
  }
  add(LaneMessage::kStale, [](LaneBuffer& m) { m.append(AckRecord{1, 1, 2, 0, {3, 4}}); });
  for (const LaneMessage type : {LaneMessage::kPlanAnswer, LaneMessage::kVerdict})
    add(type, [](LaneBuffer& m) {
      m.append(VerdictRecord{5, 0, 123, {1, 2}});
      m.append_text("tensor w1: shapes differ");
    });
  corpus.add_numbered("lane_headers",
                      bytes_text(abort_message(id, Error(ErrorCode::kAborted, "enough")).bytes()));
}

// Orders of chunk_messages.cc: a plan of one region, chunks into it, a final round, a manifest; and parts of that.
void add_chunk_messages(Corpus& corpus) {
  const std::string plan{0, 0, 0};
  const std::string zero_chunk{1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0};
  const std::string raw_chunk = std::string{1, 0, 1, 1, 0, 2} + raw(std::uint32_t{4000}) + std::string{0};
  const std::string dropped{2, 1, 1};
  const std::string final_round{3, 1, 0};
  const std::string host_state{4, 5, 'h', 'e', 'l', 'l', 'o', 2};
  const std::string manifest{5, 3, 'm', 'a', 'n', 0, 0};
  corpus.add_numbered("chunk_messages", plan + raw_chunk + final_round + host_state + manifest);
  corpus.add_numbered("chunk_messages", plan + zero_chunk + raw_chunk + dropped + final_round + manifest);
  corpus.add_numbered("chunk_messages",
                      std::string{0, 63, 2} + raw_chunk + std::string{0, 127, 2} + final_round);
  corpus.add_numbered("chunk_messages", raw_chunk);
  corpus.add_numbered("chunk_messages", host_state + host_state + plan + plan);
}

void add_configurations(Corpus& corpus) {
  const char* target = "configuration";
  corpus.add(target, "agent", std::string(1, '\0') + R"(node = "node-a"
home = "/var/lib/gpumigrate"
coordinator = "127.0.0.1:4000"
token_file = "/t"
peer_listen = "127.0.0.1:0"
insecure = false
log_level = "debug"
job_environment = ["A=b", "C="]
[lease]
term_ms = 5000
[timeouts]
pause_ms = 60000
standby_ms = 1
[mover]
staging_mib = 64
restart_ms = 200
)");
  corpus.add(target, "agent_by_file",
             std::string(1, '\0') + "node='n'\nhome='/h'\ncoordinator_file='/c'\ninsecure=true\n");
  corpus.add(target, "coordinator",
             "\1"
             R"(home = "~/x"
api_address = "127.0.0.1:0"
agent_address = "127.0.0.1:0"
insecure = true
log_level = "off"
lease_term_ms = 100
switch_timeout_ms = 0x7fff
agent_idle_timeout_ms = 1_000
placement_margin_bytes = 67108864
)");
  corpus.add(target, "keeper",
             "\2"
             R"({"job":"j1","name":"n","incarnation":3,"role":"standby","argv":["x","y"],"env":{"A":"b"},
"cwd":"/tmp","ranks":1,"uid":0,"gid":null})");
  corpus.add(target, "visible_gpus",
             "\3"
             "2,0,x");
}

void add_api_bodies(Corpus& corpus) {
  corpus.add("api_bodies", "migrate",
             R"({"to":"node-b:0","mode":"live","bandwidth":4096,"slowdown_percent":2.5,"dry_run":true})");
  corpus.add("api_bodies", "submit", R"({"argv":["./x","\u00e4"],"env":{"A":"b","C":""}})");
  corpus.add("api_bodies", "odd",
             R"({"to":null,"mode":"x","bandwidth":1e3,"slowdown_percent":-1,"argv":[1],"env":{"=":"b"}})");
  corpus.add("api_bodies", "zero_bytes", R"({"env":{"A\u0000B":"x"},"argv":["a\u0000"],"to":"b\u0000"})");
  corpus.add("api_bodies", "deep", std::string(20, '[') + std::string(20, ']'));
}

void add_chunks(Corpus& corpus) {
  constexpr codec::Encoding kEncodings[] = {codec::Encoding::kRaw, codec::Encoding::kPlanes2,
                                            codec::Encoding::kPlanes4, codec::Encoding::kDifference2,
                                            codec::Encoding::kDifference4};
  constexpr std::size_t kBytes = 2001;
  Bytes chunk(kBytes);
  Bytes previous(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) {
    previous[i] = static_cast<std::byte>(i * 37 + 3);  // pattern(.., 3) of codec_chunks.cc
    chunk[i] = i % 4 < 2 ? static_cast<std::byte>(i % 3) : previous[i];
  }
  const auto coder = codec::Coder::create(1 << 16).value();
  const auto length = static_cast<std::uint16_t>(kBytes);
  for (std::uint8_t i = 0; i < std::size(kEncodings); ++i) {
    const bool with_previous = codec::needs_previous(kEncodings[i]);
    Bytes encoded(kBytes);
    const auto size = coder->encode(
        kEncodings[i], chunk,
        with_previous ? std::span<const std::byte>(previous) : std::span<const std::byte>(), encoded);
    encoded.resize(size.value_or(0));
    corpus.add_numbered("codec_chunks", raw(i) + raw(length) + std::string(1, with_previous ? '\1' : '\0') +
                                            bytes_text(size ? encoded : chunk));
  }
  // The first and the short last of three blocks.
  const std::uint32_t mask = 0b101;
  constexpr std::uint16_t kThreeBlocks = 2 * codec::kPatchBlockBytes + 100;
  corpus.add_numbered("codec_chunks", std::string(1, '\5') + raw(kThreeBlocks) + std::string(1, '\0') +
                                          raw(mask) + std::string(codec::kPatchBlockBytes + 100, 'x'));
}

// As agent/host_process/image_pack.cc writes it, whose structs are its own. {nothing beyond, `front` units of zeroes}: image_packs.cc
std::string image_pack(const std::vector<std::pair<std::string, std::string>>& files, char front = 0) {
  std::string contents;
  std::string table;
  for (const auto& [name, content] : files) {
    std::string padded = name;
    padded.resize(56);
    const std::uint64_t before = table.empty() ? static_cast<std::uint64_t>(front) << 18 : 0;
    table += raw(before + content.size()) + padded;
    contents += content;
  }
  return std::string{0, front} + contents + table + raw(std::uint64_t{0x3247'4d49'4350'4d47}) +
         raw(std::uint32_t{2}) + raw(static_cast<std::uint32_t>(files.size()));
}

void add_image_packs(Corpus& corpus) {
  const std::string taken = image_pack({{"core-1.img", "first"}, {"pages-1.img", std::string(500, 'p')}});
  corpus.add("image_packs", "taken", taken);
  corpus.add("image_packs", "linked", image_pack({{"pages-1.img", "end"}, {"core-1.img", "first"}}, 4));
  corpus.add("image_packs", "nothing_in_it", image_pack({}));
  corpus.add("image_packs", "twice", image_pack({{"a", "1"}, {"a", "2"}}));
  corpus.add("image_packs", "outside", image_pack({{"../a", "1"}, {"/tmp/b", "2"}}));
  corpus.add("image_packs", "too_short", "\1" + taken.substr(1));
  corpus.add("image_packs", "too_long", taken + "more");
}

std::string program_with_build_id() {
  const std::string note =
      raw(Elf64_Nhdr{4, 20, NT_GNU_BUILD_ID}) + std::string("GNU\0", 4) + std::string(20, '\x5a');
  Elf64_Ehdr header{};
  std::copy_n(ELFMAG, SELFMAG, header.e_ident);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  Elf64_Phdr segment{};
  segment.p_type = PT_NOTE;
  segment.p_offset = sizeof header + sizeof segment;
  segment.p_filesz = note.size();
  return raw(header) + raw(segment) + note;
}

// The target knows a file by its use, and puts it where it is (file_lists.cc).
void add_file_lists(Corpus& corpus) {
  using agent::host::FileUse;
  const std::string program = program_with_build_id();
  const std::string length = raw(static_cast<std::uint16_t>(program.size()));
  agent::host::FileList list;
  const auto add = [&list](FileUse use, std::uint64_t bytes, std::uint64_t device, const std::string& id) {
    auto& fact = list.files.emplace_back();
    fact.use = use;
    fact.path = "/f" + std::to_string(list.files.size());
    fact.bytes = bytes;
    fact.device = device;
    fact.build_id = id;
  };
  std::string id;
  for (int i = 0; i < 20; ++i) id += "5a";
  add(FileUse::kRead, 100, 0, "");
  add(FileUse::kWritten, 99, 0, "");
  add(FileUse::kProgram, program.size(), 0, id);
  add(FileUse::kFolder, 0, 0, "");
  add(FileUse::kDevice, 0, 0x103, "");
  add(FileUse::kOther, 0, 0, "");
  corpus.add("file_lists", "as_here", length + program + bytes_text(wire::encode(list)));
  list.files.front().bytes = 101;
  corpus.add("file_lists", "another_size", length + program + bytes_text(wire::encode(list)));
  list.files.front().path = "relative";
  corpus.add("file_lists", "malformed", length + program + bytes_text(wire::encode(list)));
  corpus.add("file_lists", "no_program",
             std::string(2, '\0') + bytes_text(wire::encode(agent::host::FileList())));
}

void add_context_packets(Corpus& corpus) {
  using namespace agent::context;
  Order order;
  order.pid = 7;
  order.id = 1;
  for (std::uint32_t kind = 1; kind <= static_cast<std::uint32_t>(Kind::kRestoreThread); ++kind) {
    order.kind = static_cast<Kind>(kind);
    order.pair_count = order.kind == Kind::kRestore ? 1 : 0;
    corpus.add_numbered("context_packets", std::string(1, '\0') + raw(order));
    Answer answer;
    answer.kind = order.kind;
    answer.id = 1;
    corpus.add_numbered("context_packets", std::string(1, '\1') + raw(answer));
    set_error(answer, Error(ErrorCode::kTimedOut, "The driver does not answer"));
    corpus.add_numbered("context_packets", std::string(1, '\1') + raw(answer));
  }
}

void add_instance_files(Corpus& corpus) {
  corpus.add("instance_files", "record",
             std::string(1, '\0') + bytes_text(wire::encode(filled<agent::JobRecord>())));
  corpus.add("instance_files", "status",
             "\1"
             R"({"exit_code":3,"ended_by_keeper":true})");
  corpus.add("instance_files", "status_by_signal",
             "\1"
             R"({"exit_code":null,"signal":9,"ended_by_keeper":false})");
  corpus.add("instance_files", "folder", "\2j1.2");
  corpus.add("instance_files", "folder_of_a_standby", "\2j1.2.m3");
  corpus.add("instance_files", "folder_with_a_sign", "\2j-1.2.m+3");
}

void add_health_reports(Corpus& corpus) {
  using namespace agent::nvml_watch;
  Report report;
  const auto add = [&](Kind kind) {
    report.kind = kind;
    corpus.add_numbered("health_reports", std::string(1, '\0') + raw(report));
  };
  set_text(report, "GPU-00112233-4455-6677-8899-aabbccddeeff 00000000:3B:00.0 NVIDIA H100 80GB HBM3");
  add(Kind::kGpu);
  set_text(report, "The driver does not answer");
  add(Kind::kFailed);
  report.xid = 79;
  report.flags = kRecoveryKnown | kRemapPending;
  add(Kind::kState);
  add(Kind::kXid);
  corpus.add_numbered("health_reports", "\1" + bytes_text(wire::encode(filled<agent::HealthRecord>())));
}

void add_http_targets(Corpus& corpus) {
  corpus.add("http_targets", "job", "/v1/jobs/j-1/log?from=0&follow");
  corpus.add("http_targets", "escaped", "/v1/%6aobs/%2F%00?a%3Db=c%26d&a%3db=");
  corpus.add("http_targets", "cut_escape", "/v1/jobs%2");
  corpus.add("http_targets", "empty_pieces", "//a//?&&=&x");
}

void add_ucx_frames(Corpus& corpus) {
  using transport::FrameKind;
  const std::string header = "header";
  for (const FrameKind kind :
       {FrameKind::kHello, FrameKind::kWelcome, FrameKind::kMessage, FrameKind::kCredit}) {
    transport::Frame frame;
    frame.kind = kind;
    frame.header_bytes = static_cast<std::uint16_t>(header.size());
    frame.payload_bytes = 4096;
    corpus.add_numbered("ucx_frames", raw(std::uint32_t{4096}) + raw(frame) + header);
  }
  transport::Frame near;  // only the payload's address travels
  near.kind = FrameKind::kNear;
  near.header_bytes = static_cast<std::uint16_t>(header.size());
  near.payload_bytes = transport::kRendezvousBytes;
  corpus.add_numbered("ucx_frames", raw(std::uint32_t{sizeof(std::uint64_t)}) + raw(near) + header);
  corpus.add("ucx_frames", "address", "ucx:127.0.0.1:4000");
}

void add_vault_requests(Corpus& corpus) {
  using namespace vault;
  const auto add = [&corpus](const auto& message) {
    corpus.add_numbered("vault_requests", "m" + bytes_text(wire::encode(message)));
  };
  add(filled<FileHello>());
  for (std::uint8_t op = 1; is_known(static_cast<FileOp>(op)); ++op) {
    auto request = filled<FileRequest>();
    request.op = static_cast<FileOp>(op);
    add(request);
  }
  add(filled<FileReply>());
}

void make(Corpus& corpus) {
  add_control_frames(corpus);
  add_mover_packets(corpus, std::make_index_sequence<std::variant_size_v<wire::mover::Message>>());
  for (const auto& [descriptors, body] : job_messages())
    corpus.add_numbered("job_packets", raw(descriptors) + bytes_text(local::encode({0, 42, body}).value()));
  add_journals(corpus);
  add_images(corpus);
  add_lane_headers(corpus);
  add_chunk_messages(corpus);
  add_configurations(corpus);
  add_api_bodies(corpus);
  add_chunks(corpus);
  add_image_packs(corpus);
  add_file_lists(corpus);
  add_context_packets(corpus);
  add_instance_files(corpus);
  add_health_reports(corpus);
  add_http_targets(corpus);
  add_ucx_frames(corpus);
  add_vault_requests(corpus);
}

}  // namespace
}  // namespace ckpt::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: fuzz_make_corpus DIRECTORY\n";
    return 64;
  }
  ckpt::fuzz::Corpus corpus(argv[1]);
  ckpt::fuzz::make(corpus);
  return 0;
}
