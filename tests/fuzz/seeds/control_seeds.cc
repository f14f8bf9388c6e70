// SPDX-License-Identifier: Apache-2.0
#include "libckpt/include/ckpt/ckpt.h"
#include "libckpt/inprocess/local/messages.h"
#include "libckpt/protocol/handover/records.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/mover_messages.h"
#include "libckpt/store/backup/backup_file.h"
#include "tests/fuzz/seeds/control_frame_list.h"
#include "tests/fuzz/seeds/filler.h"
#include "tests/fuzz/seeds/seeds.h"

namespace ckpt::fuzz {
namespace {

wire::MigrationPlan migration_plan() {
  auto plan = filled<wire::MigrationPlan>();
  plan.fingerprint_key.assign(wire::kFingerprintKeyBytes, std::byte{1});
  plan.session_token.assign(wire::kSessionTokenBytes, std::byte{2});
  return plan;
}

std::vector<wire::CommitMessage> handover_messages() {
  using namespace wire;
  const Reason reason(ErrorCode::kTimedOut, "late");
  const auto c = Role::kCoordinator;
  const auto s = Role::kSource;
  const auto t = Role::kTarget;
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
          {1, 2, 3, t, s, Ran(4)},
          {1, 2, 3, s, t, Released{}},
          {1, 2, 3, t, s, Relinquished(reason)},
          {1, 2, 3, c, t, GiveUp(reason)},
          {1, 2, 3, c, t, Aborted(reason)},
          {1, 2, 3, s, c, Resumed(3, true, true)},
          {1, 2, 3, c, s, Closed(Side::kTarget)},
          {1, 2, 3, s, t, Query(reason)}};
}

template <std::size_t... I>
void add_each_packet(Corpus& corpus, std::index_sequence<I...>) {
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
  return {{0, local::Hello{7, 1, MigrationMode::kTransparent, 1}},
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
          {0, WithdrawRegions{7, 12, {{1, 6}}}},
          {0, AwaitMemory{}}};
}

}  // namespace

void add_control_frames(Corpus& corpus) {
  std::uint16_t index = 0;
  for (const auto& message : handover_messages())
    corpus.add_numbered("control_frames", raw(index) + bytes_text(wire::encode_commit(message)));
  ControlMessages::for_each([&]<class M>() {
    corpus.add_numbered("control_frames", raw(++index) + bytes_text(wire::encode(filled<M>())));
  });
  const auto frame = wire::make_frame(wire::FrameType::kPing, 5, wire::encode(wire::Ping()));
  corpus.add_numbered("control_frames", bytes_text(frame.value()));
}

void add_mover_packets(Corpus& corpus) {
  add_each_packet(corpus, std::make_index_sequence<std::variant_size_v<wire::mover::Message>>());
}

void add_job_packets(Corpus& corpus) {
  for (const auto& [descriptors, body] : job_messages())
    corpus.add_numbered("job_packets", raw(descriptors) + bytes_text(local::encode({0, 42, body}).value()));
}

void add_journals(Corpus& corpus) {
  using namespace migration;
  const HandoverInfo info(1, 2, 1, {RankPlace(0, "a", "0", "b", "1")}, wire::encode(migration_plan()));
  const std::pair<Role, RecordKind> kinds[] = {
      {Role::kCoordinator, RecordKind::kBegun},   {Role::kCoordinator, RecordKind::kGranted},
      {Role::kCoordinator, RecordKind::kAborted}, {Role::kCoordinator, RecordKind::kClosed},
      {Role::kSource, RecordKind::kBarrier},      {Role::kSource, RecordKind::kResumed},
      {Role::kSource, RecordKind::kReleased},     {Role::kTarget, RecordKind::kCommitted},
      {Role::kTarget, RecordKind::kRelinquished}};
  for (const auto& [party, kind] : kinds) {
    Record record(info, party, kind, 2);
    record.side = 1;
    corpus.add_numbered("journal_records", bytes_text(encode_record(record)));
  }
  // Inputs in the format of journal_files.cc: {cut u16, no magic u8, {order u8, choice u8, ...}...}
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

template <std::size_t I = 0>
void add_gang_messages(Corpus& corpus, const gang::GangInfo& info) {
  if constexpr (I < std::variant_size_v<gang::Body>) {
    gang::Body body(std::in_place_index<I>);
    std::visit(
        [](auto& what) {
          if constexpr (requires { what.side; }) what.side = gang::Side::kTarget;
        },
        body);
    wire::CommitMessage message(info, gang::Party(gang::Role::kSource, 2), gang::Party(), body);
    if (std::holds_alternative<gang::Prepare>(body)) message.info = info;
    if (wire::has_body(message.kind, body))
      corpus.add_numbered("gang_bodies", std::string(1, '\0') + bytes_text(wire::encode_commit(message)));
    add_gang_messages<I + 1>(corpus, info);
  }
}

// Adds gang bodies in the format of gang_bodies.cc: {which u8, body}.
void add_gang_bodies(Corpus& corpus) {
  gang::GangPlan plan = filled<gang::GangPlan>();
  gang::GangInfo info;
  info.migration = 9;
  info.gang = 4;
  info.base = 3;
  info.moved = {2};
  info.staying = {0, 1};
  info.plan = wire::encode(plan);
  add_gang_messages(corpus, info);
  const std::pair<gang::Role, gang::RecordKind> kinds[] = {
      {gang::Role::kCoordinator, gang::RecordKind::kBegun},
      {gang::Role::kCoordinator, gang::RecordKind::kClosed},
      {gang::Role::kSource, gang::RecordKind::kBarrier},
      {gang::Role::kTarget, gang::RecordKind::kCommitted},
      {gang::Role::kBystander, gang::RecordKind::kHeld}};
  for (const auto& [role, kind] : kinds) {
    gang::Record record;
    record.info = info;
    record.party = gang::Party(role, 2);
    record.kind = kind;
    if (kind == gang::RecordKind::kClosed) record.side = gang::Side::kTarget;
    corpus.add_numbered("gang_bodies", std::string(1, '\1') + bytes_text(gang::GangRecords::encode(record)));
  }
  corpus.add_numbered("gang_bodies", std::string(1, '\2') + bytes_text(wire::encode(plan)));
}

// Adds the header alone, whose checksum is still to be computed, and a complete file whose parts are empty.
void add_backup_files(Corpus& corpus) {
  backup::Contents contents;
  contents.cluster = "c0ffee";
  contents.software = "1.2";
  contents.jobs = 3;
  contents.sizes.assign(backup::kParts.size(), 0);
  const Bytes header = wire::encode(contents);
  const std::uint64_t file_bytes = backup::kPrefixBytes + header.size();
  corpus.add_numbered("backup_files", raw(file_bytes) + '\1' + bytes_text(header));
  corpus.add_numbered("backup_files", raw(file_bytes) + '\0' + std::string(backup::kMagic) +
                                          raw(static_cast<std::uint32_t>(header.size())) +
                                          raw(wire::crc32(header)) + bytes_text(header));
  contents.sizes = {5 * backup::kBlockBytes, 0, 1, 2, 3, backup::kBlockBytes + 1};
  const Bytes large = wire::encode(contents);
  const std::uint64_t large_bytes =
      backup::kPrefixBytes + large.size() + 6 * backup::kBlockBytes + 7 + 10 * sizeof(std::uint32_t);
  corpus.add_numbered("backup_files", raw(large_bytes) + '\1' + bytes_text(large));
}

}  // namespace ckpt::fuzz
