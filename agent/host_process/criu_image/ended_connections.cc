// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/ended_connections.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <utility>

#include "agent/host_process/criu_image/criu_records.h"
#include "agent/host_process/criu_image/files_image.h"
#include "criu_images.pb.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::uint32_t kShutdownRead = 1;
constexpr std::uint32_t kShutdownBoth = 3;
constexpr int kInetWords = 4;
constexpr std::size_t kMaxFilesImage = 64u << 20;

struct Address {
  std::array<std::uint32_t, kInetWords> words{};
  std::uint32_t port = 0;
  friend auto operator<=>(const Address&, const Address&) = default;
};
using Ends = std::pair<Address, Address>;  // a connection's own address and its peer's address

// Returns the address. An IPv4 address has the same form whether its socket is an IPv4 or an IPv6 socket.
template <class Words>
Address address_of(const Words& given, std::uint32_t port) {
  Address address;
  address.port = port;
  for (int i = 0; i < std::min(kInetWords, given.size()); ++i)
    address.words[static_cast<std::size_t>(i)] = given.Get(i);
  const bool is_mapped = given.size() == kInetWords && address.words[0] == 0 && address.words[1] == 0 &&
                         address.words[2] == htonl(0xffff);
  if (is_mapped) address.words = {address.words[3], 0, 0, 0};
  return address;
}

Ends ends_of(const criu::inet_sk_entry& socket) {
  return {address_of(socket.src_addr(), socket.src_port()), address_of(socket.dst_addr(), socket.dst_port())};
}

bool is_tcp(const criu::file_entry& file) {
  return file.has_isk() && file.isk().proto() == IPPROTO_TCP && file.isk().type() == SOCK_STREAM;
}

bool is_connection(const criu::file_entry& file) {
  return is_tcp(file) && file.isk().dst_port() != 0;
}

// Returns true for a connection that had ended before the dump. CRIU would bind its socket to the source's
// address, which the target may lack. A socket that is bound and was never connected can still be read.
bool has_ended_before(const criu::file_entry& file) {
  return is_tcp(file) && !is_connection(file) && file.isk().state() == TCP_CLOSE &&
         file.isk().src_port() != 0 && (file.isk().shutdown() & kShutdownRead) != 0;
}

void unbind(criu::inet_sk_entry& socket) {
  socket.set_src_port(0);
  socket.clear_ifname();
}

// Makes the socket unconnected and unbound. CRIU then creates the socket and shuts it down.
void end_connection(criu::inet_sk_entry& socket) {
  socket.set_state(TCP_CLOSE);
  socket.set_dst_port(0);
  unbind(socket);
  socket.set_shutdown(kShutdownBoth);
  socket.mutable_opts()->clear_so_filter();        // the filter may be that of hold_packets()
  socket.mutable_opts()->set_so_mark(kEndedMark);  // CRIU saves 0 for a socket without a mark
}

Result<std::set<Ends>> established_in(const std::string& files) {
  std::set<Ends> established;
  CKPT_TRYV(with_changed_records(files, [&established](const std::string& record) -> Result<std::string> {
    CKPT_TRY(file, parse_record<criu::file_entry>(record, "files.img"));
    if (is_connection(file) && file.isk().state() == TCP_ESTABLISHED) established.insert(ends_of(file.isk()));
    return record;
  }));
  return established;
}

std::string stream_path(const std::string& images, std::uint32_t number) {
  char name[40];
  std::snprintf(name, sizeof name, "/tcp-stream-%x.img", number);
  return images + name;
}

}  // namespace

Result<std::string> with_ended_connections(const std::string& files, ImageConnections& found) {
  CKPT_TRY(established, established_in(files));
  const auto change = [&established, &found](const std::string& record) -> Result<std::string> {
    CKPT_TRY(file, parse_record<criu::file_entry>(record, "files.img"));
    if (has_ended_before(file)) {
      unbind(*file.mutable_isk());
      return file.SerializeAsString();
    }
    if (!is_connection(file)) return record;
    const Ends ends = ends_of(file.isk());
    if (established.contains(ends) && established.contains({ends.second, ends.first})) {
      ++found.inner;
      return record;
    }
    found.ended.push_back(file.isk().ino());
    end_connection(*file.mutable_isk());
    return file.SerializeAsString();
  };
  return with_changed_records(files, change);
}

Result<ImageConnections> end_outer_connections(const std::string& images) {
  ImageConnections found;
  const std::string path = images + "/files.img";
  CKPT_TRY(files, read_file(path, kMaxFilesImage));
  CKPT_TRY(changed, with_ended_connections(files, found));
  if (changed != files) {
    CKPT_TRYV(write_file_durably(path, changed));
  }
  for (const std::uint32_t number : found.ended) ::unlink(stream_path(images, number).c_str());
  return found;
}

}  // namespace ckpt::agent::host
