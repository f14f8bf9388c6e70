// SPDX-License-Identifier: Apache-2.0
// Journal files, built after the input's orders: intact records, forged records with a correct checksum,
// garbage, torn tails. For any file, opening either fails cleanly or gives a usable journal. A usable journal
// accepts a record and contains it after the next opening. Intact records at the beginning are never lost
// silently.
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/protocol/handover/journal.h"
#include "libckpt/protocol/wire/codec.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/scratch_folder.h"

namespace ckpt::fuzz {
namespace {

using migration::Journal;
using migration::Record;
using migration::RecordKind;

// The format of journal_file.cc; check_format() notices a change.
constexpr std::string_view kFileMagic = "GPMJRNL2";
constexpr std::string_view kFileMagic1 = "GPMJRNL1";
constexpr std::uint32_t kFrameMagic = 0x4352'504a;
constexpr std::uint32_t kReferringMagic = 0x4352'504b;
constexpr std::size_t kMaxOrders = 24;

std::string path_of_file() {
  return scratch_folder() + "/journal";
}

Record record_of(std::uint8_t choice) {
  using wire::Role;
  const migration::HandoverInfo info(1 + choice % 3, 2, 1, {wire::RankPlace(0, "a", "0", "b", "1")},
                                     migration::Bytes(choice));
  switch (choice % 4) {
    case 0:
      return {info, Role::kSource, RecordKind::kBarrier};
    case 1:
      return {info, Role::kSource, RecordKind::kResumed, 1};
    case 2:
      return {info, Role::kTarget, RecordKind::kCommitted, 2};
    default:
      return {info, Role::kCoordinator, RecordKind::kBegun};
  }
}

std::string frame(std::span<const std::byte> body, std::uint32_t index, std::uint32_t magic = kFrameMagic) {
  const std::uint32_t head[4] = {magic, static_cast<std::uint32_t>(body.size()), wire::crc32(body), index};
  std::string out(reinterpret_cast<const char*>(head), sizeof head);
  out.append(reinterpret_cast<const char*>(body.data()), body.size());
  out.resize((out.size() + 7) / 8 * 8);
  return out;
}

struct File {
  std::string bytes{kFileMagic};
  std::uint32_t frames = 0;
  std::vector<std::size_t> intact_ends;  // the ends of the real records at the beginning
  std::size_t max_records = kMaxOrders;
  bool disturbed = false;
  bool compact = false;

  void add_intact(std::uint8_t choice) {
    bytes += frame(migration::encode_record(record_of(choice)), frames++);
    if (!disturbed) intact_ends.push_back(bytes.size());
  }
  // Adds an intact record in the wrong place, like an old record that survived a rewrite. Neither this record
  // nor any later record belongs to the journal.
  void add_misplaced(std::uint8_t choice, std::uint32_t index) {
    if (index == frames) return add_intact(choice);
    max_records = std::min<std::size_t>(max_records, frames);
    add_other(frame(migration::encode_record(record_of(choice)), index));
  }
  void add_other(std::string_view more) {
    bytes += more;
    disturbed = true;
  }
};

void follow_order(Input& input, File& file) {
  const auto what = input.number<std::uint8_t>();
  const auto choice = input.number<std::uint8_t>();
  switch (what % 6) {
    case 0:
      return file.add_intact(choice);
    case 1:
      return file.add_other(
          frame(input.bytes(choice), file.frames++, choice % 2 == 0 ? kFrameMagic : kReferringMagic));
    case 2:
      return file.add_misplaced(choice, input.number<std::uint32_t>());
    case 3: {
      const auto raw = input.bytes(choice);
      return file.add_other({reinterpret_cast<const char*>(raw.data()), raw.size()});
    }
    case 4:
      return file.add_other(std::string(choice, '\0'));
    default: {
      std::string broken = frame(migration::encode_record(record_of(choice)), file.frames++);
      broken[input.number<std::uint16_t>() % broken.size()] ^= static_cast<char>(1 + choice % 255);
      return file.add_other(broken);
    }
  }
}

File file_of(Input& input) {
  File file;
  const auto cut = input.number<std::uint16_t>();  // the length of a tail that was never written
  const auto kind = input.number<std::uint8_t>();
  file.compact = kind % 8 == 7;
  if ((kind & 16) != 0) file.bytes = kFileMagic1;
  if (kind == 1) {  // a file that is not a journal
    file.bytes.clear();
    file.disturbed = true;
  }
  for (std::size_t i = 0; i < kMaxOrders && !input.empty(); ++i) follow_order(input, file);
  const std::size_t left = file.bytes.size() - std::min<std::size_t>(cut, file.bytes.size());
  file.bytes.resize(left);
  std::erase_if(file.intact_ends, [left](std::size_t end) { return end > left; });
  return file;
}

void check_holds_what_it_takes(const std::string& path, const std::vector<Record>& expected) {
  const auto journal = Journal::open(path);
  FUZZ_CHECK(journal.has_value());
  FUZZ_CHECK(journal->records() == expected);
  FUZZ_CHECK(journal->torn_bytes() == 0);
}

void check(const File& file) {
  const std::string path = path_of_file();
  write_whole_file(path, file.bytes);
  std::vector<Record> expected;
  {
    auto journal = Journal::open(path);
    if (!journal) return;
    expected = journal->records();
    FUZZ_CHECK(expected.size() >= file.intact_ends.size());
    FUZZ_CHECK(expected.size() <= file.max_records);
    expected.push_back(record_of(7));
    FUZZ_CHECK(journal->append(expected.back()).has_value());
  }
  check_holds_what_it_takes(path, expected);
  if (!file.compact) return;
  {
    auto journal = Journal::open(path);
    FUZZ_CHECK(journal->compact([](const Record&) { return false; }).has_value());
    expected = journal->records();
  }
  check_holds_what_it_takes(path, expected);
}

// Checks the format. Otherwise the orders would build files of another format, and nothing would be tested.
bool check_format() {
  File file;
  for (std::uint8_t i = 0; i < 8; ++i) file.add_intact(i);
  write_whole_file(path_of_file(), file.bytes);
  const auto journal = Journal::open(path_of_file());
  FUZZ_CHECK(journal.has_value() && journal->records().size() == 8);
  return true;
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::fuzz;
  [[maybe_unused]] static const bool known_format = check_format();
  Input input(data, size);
  check(file_of(input));
  return 0;
}
