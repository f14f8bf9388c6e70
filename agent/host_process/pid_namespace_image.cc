// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/pid_namespace_image.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::uint32_t kImageMagic = 0x54564319;
constexpr std::uint32_t kInventoryMagic = 0x58313116;  // stands alone
constexpr std::uint32_t kTreeMagic = 0x50273030;
constexpr std::uint32_t kPidNamespaceMagic = 0x61157326;
constexpr std::size_t kMaxImageBytes = 4u << 20;
// Numbers of fields in the records.
constexpr std::uint32_t kTreeGroup = 3, kTreeSession = 4, kTreePid = 1;
constexpr std::uint32_t kInventoryRootIds = 3;
constexpr std::uint32_t kIdsPidNamespace = 5;
// No namespace of an image has this id: CRIU counts them from 1.
constexpr std::uint64_t kNowhere = 0x7fffffff;

Error strange(const std::string& what) {
  return {ErrorCode::kCorrupt, "CRIU's image is not understood: " + what};
}

struct Field {
  std::uint32_t number = 0;
  std::uint32_t wire = 0;  // 0 a number, 2 bytes
  std::uint64_t value = 0;
  std::string bytes;
};

bool take_number(const std::string& from, std::size_t& at, std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && at < from.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(from[at++]);
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if ((byte & 0x80u) == 0) return true;
  }
  return false;
}

void put_number(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>((value & 0x7f) | 0x80));
  to.push_back(static_cast<char>(value));
}

Result<std::vector<Field>> parse_record(const std::string& record) {
  std::vector<Field> fields;
  for (std::size_t at = 0; at < record.size();) {
    std::uint64_t key = 0, value = 0;
    if (!take_number(record, at, key) || !take_number(record, at, value)) return strange("a cut record");
    Field field{static_cast<std::uint32_t>(key >> 3), static_cast<std::uint32_t>(key & 7), value, {}};
    if (field.wire != 0 && field.wire != 2) return strange("a field of another kind");
    if (field.wire == 2) {
      if (value > record.size() - at) return strange("a cut field");
      field.bytes = record.substr(at, value);
      at += value;
    }
    fields.push_back(std::move(field));
  }
  return fields;
}

std::string to_record(const std::vector<Field>& fields) {
  std::string record;
  for (const Field& field : fields) {
    put_number(record, std::uint64_t{field.number} << 3 | field.wire);
    put_number(record, field.wire == 2 ? field.bytes.size() : field.value);
    record += field.bytes;
  }
  return record;
}

Field* find(std::vector<Field>& fields, std::uint32_t number, std::uint32_t wire) {
  const auto at = std::find_if(fields.begin(), fields.end(), [&](const Field& field) {
    return field.number == number && field.wire == wire;
  });
  return at == fields.end() ? nullptr : &*at;
}

std::uint32_t word_at(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  if (bytes.size() >= at + sizeof value) std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

void put_word(std::string& to, std::uint32_t value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// The records behind `begin`: each a size of four bytes, then itself.
Result<std::vector<std::string>> records_of(const std::string& image, std::size_t begin) {
  std::vector<std::string> records;
  for (std::size_t at = begin; at < image.size();) {
    const std::uint32_t bytes = word_at(image, at);
    if (image.size() - at < sizeof bytes || bytes > image.size() - at - sizeof bytes)
      return strange("a cut record");
    records.push_back(image.substr(at + sizeof bytes, bytes));
    at += sizeof bytes + bytes;
  }
  if (records.empty()) return strange("no record");
  return records;
}

void put_record(std::string& image, const std::string& record) {
  put_word(image, static_cast<std::uint32_t>(record.size()));
  image += record;
}

std::string namespace_image() {
  std::string image;
  put_word(image, kImageMagic);
  put_word(image, kPidNamespaceMagic);
  put_record(image, to_record({Field{1, 2, 0, kPidNamespaceLabel}}));
  return image;
}

Result<bool> shares_namespace(pid_t pid) {
  CKPT_TRY(own, pid_namespace_of(0));
  CKPT_TRY(its, pid_namespace_of(pid));
  return own == its;
}

}  // namespace

Result<std::uint64_t> pid_namespace_of(pid_t pid) {
  const std::string path = "/proc/" + (pid == 0 ? "self" : std::to_string(pid)) + "/ns/pid";
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return Error::from_errno("Cannot read " + path);
  return static_cast<std::uint64_t>(facts.st_ino);
}

Result<std::vector<std::string>> namespace_dump_options(pid_t root) {
  CKPT_TRY(shared, shares_namespace(root));
  if (shared) return std::vector<std::string>{"--shell-job"};
  CKPT_TRY(inode, pid_namespace_of(root));
  return std::vector<std::string>{"--external", "pid[" + std::to_string(inode) + "]:" + kPidNamespaceLabel};
}

Result<std::string> with_own_session(const std::string& pstree) {
  if (word_at(pstree, 0) != kImageMagic || word_at(pstree, 4) != kTreeMagic)
    return strange("pstree.img is of another kind");
  CKPT_TRY(records, records_of(pstree, 8));
  std::string changed = pstree.substr(0, 8);
  std::optional<std::uint64_t> root, session, group;
  for (const std::string& record : records) {
    CKPT_TRY(fields, parse_record(record));
    Field* own = find(fields, kTreePid, 0);
    Field* its_session = find(fields, kTreeSession, 0);
    Field* its_group = find(fields, kTreeGroup, 0);
    if (own == nullptr || its_session == nullptr || its_group == nullptr)
      return strange("pstree.img lacks a field");
    if (!root) root = own->value;
    if (!session) session = its_session->value;
    if (!group) group = its_group->value;
    if (its_session->value == *session) its_session->value = *root;
    if (its_group->value == *session || its_group->value == *group) its_group->value = *root;
    put_record(changed, to_record(fields));
  }
  return changed;
}

Result<DetachedInventory> with_other_namespace(const std::string& inventory) {
  if (word_at(inventory, 0) != kInventoryMagic) return strange("inventory.img is of another kind");
  CKPT_TRY(records, records_of(inventory, 4));
  CKPT_TRY(fields, parse_record(records.front()));
  Field* ids = find(fields, kInventoryRootIds, 2);
  if (ids == nullptr) return strange("inventory.img names no namespaces");
  CKPT_TRY(id_fields, parse_record(ids->bytes));
  Field* id = find(id_fields, kIdsPidNamespace, 0);
  if (id == nullptr || id->value == 0 || id->value >= kNowhere)
    return strange("inventory.img names no PID namespace");
  DetachedInventory out;
  out.pid_namespace_id = static_cast<std::uint32_t>(id->value);
  id->value = kNowhere;
  ids->bytes = to_record(id_fields);
  out.bytes = inventory.substr(0, 4);
  put_record(out.bytes, to_record(fields));
  return out;
}

Result<void> detach_from_namespace(const std::string& images, pid_t root) {
  CKPT_TRY(shared, shares_namespace(root));
  if (!shared) return ok();
  CKPT_TRY(tree, read_file(images + "/pstree.img", kMaxImageBytes));
  CKPT_TRY(inventory, read_file(images + "/inventory.img", kMaxImageBytes));
  CKPT_TRY(new_tree, with_own_session(tree));
  CKPT_TRY(new_inventory, with_other_namespace(inventory));
  const std::string name = "/pidns-" + std::to_string(new_inventory.pid_namespace_id) + ".img";
  CKPT_TRYV(write_file_durably(images + "/pstree.img", new_tree));
  CKPT_TRYV(write_file_durably(images + "/inventory.img", new_inventory.bytes));
  return write_file_durably(images + name, namespace_image());
}

}  // namespace ckpt::agent::host
