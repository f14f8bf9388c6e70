// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/pid_namespace_image.h"

#include <sys/stat.h>

#include <optional>

#include "agent/host_process/criu_image/criu_records.h"
#include "criu_images.pb.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::uint32_t kInventoryMagic = 0x58313116;  // the magic of the inventory image only
constexpr std::uint32_t kTreeMagic = 0x50273030;
constexpr std::uint32_t kPidNamespaceMagic = 0x61157326;
constexpr std::size_t kMaxImageBytes = 4u << 20;
// An id that no namespace of an image has, because CRIU counts the ids from 1.
constexpr std::uint32_t kNowhere = 0x7fffffff;

std::string namespace_image() {
  criu::pidns_entry entry;
  entry.set_ext_key(kPidNamespaceLabel);
  std::string image;
  put_word(image, kImageMagic);
  put_word(image, kPidNamespaceMagic);
  put_record(image, entry.SerializeAsString());
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
    return strange_image("pstree.img has a wrong magic number");
  CKPT_TRY(records, records_of(pstree, 8));
  std::string changed = pstree.substr(0, 8);
  std::optional<criu::pstree_entry> root;
  for (const std::string& record : records) {
    CKPT_TRY(process, parse_record<criu::pstree_entry>(record, "pstree.img"));
    if (!root) root = process;
    if (process.pgid() == root->sid() || process.pgid() == root->pgid()) process.set_pgid(root->pid());
    if (process.sid() == root->sid()) process.set_sid(root->pid());
    put_record(changed, process.SerializeAsString());
  }
  return changed;
}

Result<DetachedInventory> with_other_namespace(const std::string& inventory) {
  if (word_at(inventory, 0) != kInventoryMagic)
    return strange_image("inventory.img has a wrong magic number");
  CKPT_TRY(records, records_of(inventory, 4));
  CKPT_TRY(entry, parse_record<criu::inventory_entry>(records.front(), "inventory.img"));
  DetachedInventory out;
  out.pid_namespace_id = entry.root_ids().pid_ns_id();
  if (out.pid_namespace_id == 0 || out.pid_namespace_id >= kNowhere)
    return strange_image("inventory.img contains no PID namespace");
  entry.mutable_root_ids()->set_pid_ns_id(kNowhere);
  out.bytes = inventory.substr(0, 4);
  put_record(out.bytes, entry.SerializeAsString());
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
