// SPDX-License-Identifier: Apache-2.0
#include <elf.h>

#include <algorithm>

#include "agent/context_helper/messages.h"
#include "agent/health/health_record.h"
#include "agent/health_helper/messages.h"
#include "agent/host_process/file_list.h"
#include "agent/jobs/job_record.h"
#include "tests/fuzz/seeds/filler.h"
#include "tests/fuzz/seeds/seeds.h"

namespace ckpt::fuzz {
namespace {

// Returns a pack as agent/host_process/image_pack.cc writes it; the structs of that file are private.
// {nothing beyond, `front` units of zeroes}: image_packs.cc
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

}  // namespace

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

// Adds file lists. The target recognizes a file by its use, and gives the file a path that exists
// (file_lists.cc).
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
    order.pairs.resize(order.kind == Kind::kRestore ? 1 : 0);
    corpus.add_numbered("context_packets", std::string(1, '\0') + bytes_text(wire::encode(order)));
    Answer answer;
    answer.kind = order.kind;
    answer.id = 1;
    corpus.add_numbered("context_packets", std::string(1, '\1') + bytes_text(wire::encode(answer)));
    set_error(answer, Error(ErrorCode::kTimedOut, "The driver does not answer"));
    corpus.add_numbered("context_packets", std::string(1, '\1') + bytes_text(wire::encode(answer)));
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
    corpus.add_numbered("health_reports", std::string(1, '\0') + bytes_text(wire::encode(report)));
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

}  // namespace ckpt::fuzz
